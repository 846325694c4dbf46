package local_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/local"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

func startNATS(t *testing.T, cfg local.NATSConfig) *local.NATS {
	t.Helper()
	n, err := local.StartNATS(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func connectJS(t *testing.T, url string, opts ...nats.Option) jetstream.JetStream {
	t.Helper()
	conn, err := nats.Connect(url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func TestNATSKeepsStreams(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := local.NATSConfig{Dir: dir, Port: -1, SyncAlways: true, MaxStore: 64 << 20, Log: localtest.Logger(t)}
	first := startNATS(t, cfg)
	url := first.URL()
	js := connectJS(t, url)
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "kept", Subjects: []string{"kept"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "kept", []byte("word")); err != nil {
		t.Fatal(err)
	}
	check := func(url string) {
		t.Helper()
		s, err := connectJS(t, url).Stream(t.Context(), "kept")
		if err != nil {
			t.Fatal(err)
		}
		if n := s.CachedInfo().State.Msgs; n != 1 {
			t.Errorf("stream holds %d messages", n)
		}
	}
	if err := first.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if first.URL() != url {
		t.Errorf("restarted at %s, was %s", first.URL(), url)
	}
	check(url)
	for range 2 {
		if err := first.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := nats.Connect(url, nats.NoReconnect()); err == nil {
		t.Error("a stopped server answers")
	}
	check(startNATS(t, cfg).URL())
}

func TestNATSStartErrors(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	port := taken.Addr().(*net.TCPAddr).Port
	used := t.TempDir()
	startNATS(t, local.NATSConfig{Dir: used, Log: localtest.Logger(t)})
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("no { configuration"), 0o600); err != nil {
		t.Fatal(err)
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "jetstream"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		cfg  local.NATSConfig
		is   error
		says string
	}{
		"no folder":         {local.NATSConfig{}, nil, "no folder"},
		"no such port":      {local.NATSConfig{Dir: t.TempDir(), Port: 70000}, nil, "70000"},
		"port taken":        {local.NATSConfig{Dir: t.TempDir(), Port: port}, nil, fmt.Sprintf("port %d", port)},
		"folder in use":     {local.NATSConfig{Dir: used}, local.ErrInUse, used},
		"file for folder":   {local.NATSConfig{Dir: file}, nil, file},
		"bad configuration": {local.NATSConfig{Dir: t.TempDir(), ConfigFile: file}, nil, "configuration"},
		"no store":          {local.NATSConfig{Dir: full}, nil, "storage directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.cfg.Log = localtest.Logger(t)
			n, err := local.StartNATS(t.Context(), c.cfg)
			if err == nil {
				_ = n.Stop(t.Context())
				t.Fatal("no error")
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error is not %v: %v", c.is, err)
			}
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("error does not say %q: %v", c.says, err)
			}
		})
	}
}

func TestNATSConfigurationFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "nats.conf")
	text := `authorization { users: [ { user: "clerk", password: "stamp" } ] }`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startNATS(t, local.NATSConfig{Dir: t.TempDir(), ConfigFile: file, Log: localtest.Logger(t)})
	if _, err := nats.Connect(n.URL()); err == nil {
		t.Error("a stranger was let in")
	}
	if _, err := connectJS(t, n.URL(), nats.UserInfo("clerk", "stamp")).AccountInfo(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNATSStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	// The server may have been the faster one.
	if n, err := local.StartNATS(ctx, local.NATSConfig{Dir: dir, Log: localtest.Logger(t)}); err == nil {
		if err := n.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	startNATS(t, local.NATSConfig{Dir: dir, Log: localtest.Logger(t)})
}
