package http_test

import (
	"crypto/sha256"
	"encoding/json"
	"io"
	"net"
	nethttp "net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/forwardtest"
	"github.com/posthouse-io/posthouse/pkg/forward/http"
)

const (
	token  = "correct-horse-battery"
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
)

// backend keeps what it was sent, by idempotency key.
type backend struct {
	*httptest.Server

	mu      sync.Mutex
	stored  map[string]forwardtest.Stored
	headers []nethttp.Header
	bodies  [][]byte // small ones
	conns   int
	answer  func(w nethttp.ResponseWriter, r *nethttp.Request) // after the body was taken
	refuse  bool                                               // what was taken does not count
}

func newBackend(t *testing.T, secure bool, answer func(nethttp.ResponseWriter, *nethttp.Request)) *backend {
	t.Helper()
	b := &backend{stored: map[string]forwardtest.Stored{}, answer: answer}
	b.Server = httptest.NewUnstartedServer(nethttp.HandlerFunc(b.take))
	b.Config.ConnState = func(_ net.Conn, s nethttp.ConnState) {
		if s == nethttp.StateNew {
			b.mu.Lock()
			b.conns++
			b.mu.Unlock()
		}
	}
	if secure {
		b.StartTLS()
	} else {
		b.Start()
	}
	t.Cleanup(b.Close)
	return b
}

func (b *backend) take(w nethttp.ResponseWriter, r *nethttp.Request) {
	sum, small := sha256.New(), &strings.Builder{}
	var to io.Writer = sum
	if r.ContentLength < 10_000 {
		to = io.MultiWriter(sum, small)
	}
	n, err := io.Copy(to, r.Body)
	if err != nil {
		return // cut short
	}
	b.mu.Lock()
	if !b.refuse {
		key := r.Header.Get("Idempotency-Key")
		b.stored[key] = forwardtest.Stored{Name: key, Size: n, SHA256: [32]byte(sum.Sum(nil))}
	}
	b.headers, b.bodies = append(b.headers, r.Header.Clone()), append(b.bodies, []byte(small.String()))
	b.mu.Unlock()
	b.answer(w, r)
}

func (b *backend) all() []forwardtest.Stored {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []forwardtest.Stored
	for _, s := range b.stored {
		list = append(list, s)
	}
	return list
}

// last is the newest request.
func (b *backend) last(t *testing.T) (nethttp.Header, []byte) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.headers) == 0 {
		t.Fatal("the backend was not asked")
	}
	return b.headers[len(b.headers)-1], b.bodies[len(b.bodies)-1]
}

func (b *backend) requests() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.headers)
}

func says(status int, body string) func(nethttp.ResponseWriter, *nethttp.Request) {
	return func(w nethttp.ResponseWriter, _ *nethttp.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func hangUp(w nethttp.ResponseWriter, _ *nethttp.Request) {
	conn, _, err := w.(nethttp.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func hold(_ nethttp.ResponseWriter, r *nethttp.Request) { <-r.Context().Done() }

// repeats refuses and says again what it was told.
func repeats(w nethttp.ResponseWriter, r *nethttp.Request) {
	w.WriteHeader(500)
	said := strings.Repeat("no ", 30) + r.Header.Get("Authorization") + "\r\n\x00" + strings.Repeat("why ", 1000)
	_ = json.NewEncoder(w).Encode(map[string]string{"errorMessage": said})
}

func config(url string) http.Config {
	return http.Config{
		Endpoint: url + "/in", AllowPrivate: true, BearerToken: token, SigningSecrets: []string{secret},
		ConnectTimeout: 5 * time.Second, ResponseTimeout: 20 * time.Second, Timeout: 30 * time.Second, IdleTimeout: 10 * time.Second,
	}
}

func open(t *testing.T, c http.Config, m http.Mode) forward.Forwarder {
	t.Helper()
	f, err := http.New(c, m)
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

func TestSuite(t *testing.T) {
	for name, c := range map[string]struct {
		mode   http.Mode
		secure bool
		alter  func(*http.Config)
	}{
		"sync, signed":         {http.Sync, false, nil},
		"async, not signed":    {http.Async, false, func(c *http.Config) { c.SigningSecrets = nil }},
		"sync over TLS, basic": {http.Sync, true, func(c *http.Config) { c.BearerToken, c.Username, c.Password, c.Details = "", "user", token, true }},
	} {
		t.Run(name, func(t *testing.T) {
			forwardtest.Suite(t, forwardtest.Fixture{
				Moods: []forwardtest.Mood{forwardtest.Refusing, forwardtest.Babbling, forwardtest.Silent, forwardtest.Gone, forwardtest.Away},
				New: func(t *testing.T, m forwardtest.Mood) forwardtest.Peer {
					b := newBackend(t, c.secure, map[forwardtest.Mood]func(nethttp.ResponseWriter, *nethttp.Request){
						forwardtest.Friendly: says(200, `{"countryCodeC4":"AT"}`), forwardtest.Refusing: says(422, `{"errorMessage":"no customer"}`),
						forwardtest.Babbling: repeats, forwardtest.Silent: hold, forwardtest.Gone: hangUp, forwardtest.Away: says(200, "{}"),
					}[m])
					b.refuse = m == forwardtest.Refusing || m == forwardtest.Babbling
					if m == forwardtest.Away {
						b.Close()
					}
					cfg := config(b.URL)
					if c.secure {
						cfg.CAFile = writeCA(t, b.Certificate().Raw)
					}
					if c.alter != nil {
						c.alter(&cfg)
					}
					f, err := http.New(cfg, c.mode)
					if err != nil {
						t.Fatal(err)
					}
					return forwardtest.Peer{Forwarder: f, Stored: b.all, Secrets: []string{token, secret, strings.TrimPrefix(secret, "whsec_"), "dXNlcjpjb3JyZWN0"}}
				},
			})
		})
	}
}
