package nats_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/forwardtest"
	natsforward "github.com/posthouse-io/posthouse/pkg/forward/nats"
	"github.com/posthouse-io/posthouse/pkg/local"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

func config(url, mode string) natsforward.Config {
	return natsforward.Config{Subject: "backend.in.{tenant}", Mode: mode, URL: url, Timeout: 20 * time.Second}
}

func open(t *testing.T, c natsforward.Config, conn *nats.Conn) forward.Forwarder {
	t.Helper()
	f, err := natsforward.New(c, conn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// connect is the backend's own connection.
func connect(t *testing.T, url string) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	done := make(chan struct{})
	conn, err := nats.Connect(url, nats.ClosedHandler(func(*nats.Conn) { close(done) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return conn, js
}

// stream makes a stream for the documents and returns what it holds.
func stream(t *testing.T, js jetstream.JetStream, cfg jetstream.StreamConfig) func() []forwardtest.Stored {
	t.Helper()
	cfg.Name, cfg.Subjects, cfg.Duplicates, cfg.AllowDirect = "BACKEND", []string{"backend.in.*"}, time.Minute, true
	s, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return func() []forwardtest.Stored {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		info, err := s.Info(ctx)
		if err != nil {
			t.Error(err)
			return nil
		}
		var list []forwardtest.Stored
		for n := info.State.FirstSeq; n > 0 && n <= info.State.LastSeq; n++ {
			m, err := s.GetMsg(ctx, n)
			if err != nil {
				t.Error(err)
				return nil
			}
			list = append(list, forwardtest.Stored{Name: m.Header.Get("Nats-Msg-Id"), Size: int64(len(m.Data)), SHA256: sha256.Sum256(m.Data)})
		}
		return list
	}
}

func TestSuiteJetStream(t *testing.T) {
	forwardtest.Suite(t, forwardtest.Fixture{
		Moods:   []forwardtest.Mood{forwardtest.Refusing, forwardtest.Away},
		MaxSize: 1_000_000,
		New: func(t *testing.T, m forwardtest.Mood) forwardtest.Peer {
			server := localtest.EmptyNATS(t)
			_, js := connect(t, server.URL())
			cfg := jetstream.StreamConfig{}
			if m == forwardtest.Refusing {
				cfg.MaxMsgSize = 100
			}
			stored := stream(t, js, cfg)
			if m == forwardtest.Away {
				if err := server.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			f, err := natsforward.New(config(server.URL(), natsforward.JetStream), nil)
			if err != nil {
				t.Fatal(err)
			}
			return forwardtest.Peer{Forwarder: f, Stored: stored}
		},
	})
}

// backend answers requests as the mood says; it keeps one document by each id.
func backend(t *testing.T, conn *nats.Conn, m forwardtest.Mood, server *local.NATS) func() []forwardtest.Stored {
	t.Helper()
	var mu sync.Mutex
	var stopping sync.WaitGroup
	t.Cleanup(stopping.Wait)
	kept := map[string]forwardtest.Stored{}
	_, err := conn.Subscribe("backend.in.*", func(msg *nats.Msg) {
		reply := nats.NewMsg(msg.Reply)
		switch m {
		case forwardtest.Refusing:
			reply.Header.Set("Nats-Service-Error-Code", "503")
			reply.Header.Set("Nats-Service-Error", "later")
		case forwardtest.Babbling:
			reply.Data = []byte(`{"retry":"none","errorMessage":"` + strings.Repeat("no ", 1000) + `"}`)
		default:
			mu.Lock()
			id := msg.Header.Get("Posthouse-Document-Id")
			kept[id] = forwardtest.Stored{Name: id, Size: int64(len(msg.Data)), SHA256: sha256.Sum256(msg.Data)}
			mu.Unlock()
			reply.Data = []byte(`{"countryCodeC4":"AT"}`)
		}
		switch m {
		case forwardtest.Silent:
		case forwardtest.Gone: // and the server with it
			stopping.Go(func() {
				if err := server.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
		default:
			if err := conn.PublishMsg(reply); err != nil {
				t.Error(err)
			}
		}
	})
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() []forwardtest.Stored {
		mu.Lock()
		defer mu.Unlock()
		var list []forwardtest.Stored
		for _, s := range kept {
			list = append(list, s)
		}
		return list
	}
}

func TestSuiteCore(t *testing.T) {
	forwardtest.Suite(t, forwardtest.Fixture{
		Moods:   []forwardtest.Mood{forwardtest.Refusing, forwardtest.Babbling, forwardtest.Silent, forwardtest.Gone, forwardtest.Away},
		MaxSize: 1_000_000,
		New: func(t *testing.T, m forwardtest.Mood) forwardtest.Peer {
			server := localtest.EmptyNATS(t)
			conn, _ := connect(t, server.URL())
			stored := backend(t, conn, m, server)
			if m == forwardtest.Away {
				if err := server.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			f, err := natsforward.New(config(server.URL(), natsforward.Core), nil)
			if err != nil {
				t.Fatal(err)
			}
			return forwardtest.Peer{Forwarder: f, Stored: stored}
		},
	})
}

func TestAcknowledgement(t *testing.T) {
	t.Parallel()
	url := localtest.EmptyNATS(t).URL()
	conn, js := connect(t, url)
	cfg := config("", natsforward.JetStream) // the caller's connection
	f := open(t, cfg, conn)
	d := forwardtest.Document(100)
	out := f.Forward(t.Context(), d)
	if out.Verdict != delivery.Refused || out.Answer.Code != "NO_RESPONDERS" || !out.Server || !out.Answer.Category.Retryable() {
		t.Errorf("without a stream: %+v", out)
	}
	stream(t, js, jetstream.StreamConfig{})
	if out := f.Forward(t.Context(), d); out.Verdict != delivery.Accepted || out.RemoteID != "BACKEND:1" || out.Confirmed {
		t.Errorf("%+v", out)
	}
	cfg.Stream = "ANOTHER"
	if out := open(t, cfg, conn).Forward(t.Context(), d); out.Verdict != delivery.Refused || !strings.HasPrefix(out.Answer.Code, "JS_") {
		t.Errorf("another stream: %+v", out)
	}
	if err := f.Close(); err != nil || conn.IsClosed() {
		t.Error("the caller's connection was closed")
	}
}

func TestAnswersOfABackend(t *testing.T) {
	t.Parallel()
	url := localtest.EmptyNATS(t).URL()
	conn, _ := connect(t, url)
	f := open(t, config(url, natsforward.Core), nil)
	for name, c := range map[string]struct {
		data, code string
		want       string
	}{
		"empty":          {"", "", "accepted  false"},
		"country":        {`{"countryCodeC4":"at"}`, "", "accepted AT false"},
		"no retry":       {`{"retry":"none"}`, "", "refused  true"},
		"an error":       {"", "503", "refused  false"},
		"both":           {`{"retry":"none"}`, "400", "refused  true"},
		"no JSON":        {"OK", "", "unknown  false"},
		"error, no JSON": {"oops", "500", "refused  false"},
	} {
		d := forwardtest.Document(10)
		d.Tenant = strings.NewReplacer(" ", "-", ",", "").Replace(name)
		sub, err := conn.Subscribe("backend.in."+d.Tenant, func(m *nats.Msg) {
			reply := nats.NewMsg(m.Reply)
			reply.Data = []byte(c.data)
			if c.code != "" {
				reply.Header.Set("Nats-Service-Error-Code", c.code)
			}
			if err := conn.PublishMsg(reply); err != nil {
				t.Error(err)
			}
		})
		if err == nil {
			err = conn.Flush()
		}
		if err != nil {
			t.Fatal(err)
		}
		out := f.Forward(t.Context(), d)
		if got := fmt.Sprintf("%s %s %v", out.Verdict, out.C4Country, out.NoRetry); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if err := sub.Unsubscribe(); err != nil {
			t.Error(err)
		}
	}
}

func TestTooLargeAndUnspeakable(t *testing.T) {
	t.Parallel()
	url := localtest.EmptyNATS(t).URL()
	f := open(t, config(url, natsforward.JetStream), nil)
	conn, _ := connect(t, url)
	d := forwardtest.Document(int(conn.MaxPayload()))
	d.Open = func(context.Context) (io.ReadCloser, error) { return nil, errors.New("it was opened") }
	if out := f.Forward(t.Context(), d); out.Verdict != delivery.Refused || out.Answer.Code != forward.CodePayloadTooLarge || out.Answer.Category.Retryable() {
		t.Errorf("%+v", out)
	}
	for _, tenant := range []string{"", "a.b", "*", ">", "a b", "a\r\nb"} {
		d := forwardtest.Document(10)
		d.Tenant = tenant
		if out := f.Forward(t.Context(), d); out.Verdict != delivery.Refused || out.Answer.Code != forward.CodeDocument {
			t.Errorf("%q: %+v", tenant, out)
		}
	}
}

// A server that comes later is found, and none of what was refused before comes
// after it.
func TestServerComesBack(t *testing.T) {
	t.Parallel()
	server := localtest.EmptyNATS(t)
	_, js := connect(t, server.URL())
	stored := stream(t, js, jetstream.StreamConfig{})
	f := open(t, config(server.URL(), natsforward.JetStream), nil)
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if out := f.Forward(t.Context(), forwardtest.Document(10)); out.Verdict == delivery.Accepted {
		t.Fatalf("%+v", out)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := forwardtest.Document(10)
	localtest.Eventually(t, 20*time.Second, func() error {
		if out := f.Forward(t.Context(), d); out.Verdict != delivery.Accepted {
			return fmt.Errorf("not taken: %+v", out)
		}
		return nil
	})
	if list := stored(); len(list) != 1 || list[0].SHA256 != d.SHA256 {
		t.Errorf("%+v", list)
	}
}

func TestConfigNamesEachFault(t *testing.T) {
	t.Parallel()
	err := natsforward.Config{Subject: "a.*", Mode: "x", Stream: "a b", URL: "nats://u:hunter2@x", User: "u", CredsFile: "c"}.Check()
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{"_SUBJECT", "_MODE", "_STREAM", "_URL", "_USER", "_CREDS_FILE", "_TIMEOUT"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("a fault tells a secret")
	}
	for _, s := range []string{"", "posthouse.send.mail.acme", "$JS.API.x", "_INBOX.x", "a..b", "a b", ">"} {
		c := config("", natsforward.Core)
		c.Subject = s
		if c.Check() == nil {
			t.Errorf("%q passed", s)
		}
	}
	if _, err := natsforward.New(config("", natsforward.Core), nil); err == nil {
		t.Error("no connection, and no fault")
	}
}
