package http_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/pem"
	"io"
	"net"
	nethttp "net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/forwardtest"
	"github.com/posthouse-io/posthouse/pkg/forward/http"
)

func writeCA(t *testing.T, der []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	b := newBackend(t, false, says(204, ""))
	cfg := config(b.URL)
	cfg.Headers, cfg.Details = []string{"X-Site: 7", "x-other:  a b "}, true
	cfg.SigningSecrets = append(cfg.SigningSecrets, "whsec_"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))))
	f := open(t, cfg, http.Sync)
	d := forwardtest.Document(500)
	d.SBDHInstanceID, d.Issues = "a b%ü\r\nX-Evil: 1", []byte(`[{"code":"BV"}]`)
	d.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for d.Attempt = 1; d.Attempt <= 2; d.Attempt++ {
		if out := f.Forward(t.Context(), d); out.Verdict != delivery.Accepted || !out.Confirmed {
			t.Fatalf("%+v", out)
		}
	}
	h, body := b.last(t)
	for name, want := range map[string]string{
		"Idempotency-Key": d.ID.String(), "Posthouse-Document-Id": d.ID.String(), "Posthouse-Attempt": "2", "Webhook-Id": d.ID.String(),
		"Posthouse-Sbdh-Id": "a%20b%25%C3%BC%0D%0AX-Evil%3A%201", "X-Evil": "", "Posthouse-Verdict": "passed", "Traceparent": d.Traceparent,
		"X-Site": "7", "X-Other": "a b", "Content-Type": "application/xml", "Authorization": "Bearer " + token, "User-Agent": "posthouse",
		"Posthouse-Verification-Details": base64.StdEncoding.EncodeToString(d.Issues), "Posthouse-C1-Country": "NO",
		"Posthouse-Receiver-Id": "iso6523-actorid-upis%3A%3A9915%3Atest", "Posthouse-Received-At": "2026-11-03T04:05:06.000007Z",
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	signatures := strings.Fields(h.Get("Webhook-Signature"))
	if len(signatures) != 2 {
		t.Fatalf("signatures: %q", signatures)
	}
	for i, s := range cfg.SigningSecrets {
		if want := sign(t, s, h.Get("Webhook-Id"), h.Get("Webhook-Timestamp"), body); signatures[i] != want {
			t.Errorf("signature %d: %q, want %q", i, signatures[i], want)
		}
	}
}

// sign is the standard's rule, written a second time and the plain way.
func sign(t *testing.T, secret, id, timestamp string, body []byte) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// The example of the standard's own documents.
func TestSignatureOfTheStandard(t *testing.T) {
	t.Parallel()
	got := sign(t, "whsec_plJ3nmyCDGBKInavdOK15jsl", "msg_loFOjxBNrRLzqYUf", "1731705121", []byte(`{"event_type":"ping","data":{"success":true}}`))
	if want := "v1,rAvfW3dJ/X/qxhsaXPOyyCGmRKsaKWcsNccKXlIktD0="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(" ", forward.MaxAnswer) + "{}"
	for name, c := range map[string]struct {
		mode     http.Mode
		status   int
		header   string // name: value
		body     string
		verdict  delivery.Verdict
		category delivery.Category
		code     string
		country  string
		noRetry  bool
		after    time.Duration
		server   bool
	}{
		"200 with a country":      {mode: http.Sync, status: 200, body: `{"countryCodeC4":"AT","documentId":7}`, verdict: delivery.Accepted, country: "AT"},
		"200 with a bad country":  {mode: http.Sync, status: 200, body: `{"countryCodeC4":"Austria"}`, verdict: delivery.Accepted},
		"202 empty":               {mode: http.Sync, status: 202, verdict: delivery.Accepted},
		"200 retry none":          {mode: http.Sync, status: 200, body: `{"retry":"none","errorMessage":"x"}`, verdict: delivery.Refused, category: delivery.Permanent, code: forward.CodeNoRetry, noRetry: true},
		"200 with a page":         {mode: http.Sync, status: 200, body: "<html>sign in</html>", code: forward.CodeAnswer, category: delivery.Transient, server: true},
		"200 too long":            {mode: http.Sync, status: 200, body: long, code: forward.CodeAnswer, category: delivery.Transient, server: true},
		"200 with a list":         {mode: http.Sync, status: 200, body: "[]", code: forward.CodeAnswer, category: delivery.Transient, server: true},
		"200 broken off":          {mode: http.Sync, status: 200, header: "Content-Length: 100", body: "{}", code: forward.CodeLost, category: delivery.Transient, server: true},
		"async 200 with a page":   {mode: http.Async, status: 200, body: "<html>", verdict: delivery.Accepted},
		"async 200 retry none":    {mode: http.Async, status: 200, body: `{"retry":"none"}`, verdict: delivery.Accepted},
		"400":                     {mode: http.Sync, status: 400, verdict: delivery.Refused, category: delivery.InvalidInput, code: "HTTP_400"},
		"401":                     {mode: http.Sync, status: 401, verdict: delivery.Refused, category: delivery.Auth, code: "HTTP_401", server: true},
		"404":                     {mode: http.Async, status: 404, verdict: delivery.Refused, category: delivery.Config, code: "HTTP_404", server: true},
		"408":                     {mode: http.Sync, status: 408, verdict: delivery.Refused, category: delivery.Transient, code: "HTTP_408", server: true},
		"409":                     {mode: http.Sync, status: 409, verdict: delivery.Refused, category: delivery.Permanent, code: "HTTP_409"},
		"425":                     {mode: http.Sync, status: 425, verdict: delivery.Refused, category: delivery.Transient, code: "HTTP_425", server: true},
		"429 in seconds":          {mode: http.Sync, status: 429, header: "Retry-After: 120", verdict: delivery.Refused, category: delivery.Quota, code: "HTTP_429", after: 2 * time.Minute, server: true},
		"503 for ever":            {mode: http.Async, status: 503, header: "Retry-After: 99999999999999999999", verdict: delivery.Refused, category: delivery.Transient, code: "HTTP_503", after: 24 * time.Hour, server: true},
		"500 with Retry-After":    {mode: http.Sync, status: 500, header: "Retry-After: 120", verdict: delivery.Refused, category: delivery.Transient, code: "HTTP_500", server: true},
		"503 and retry none":      {mode: http.Sync, status: 503, header: "Retry-After: 9", body: `{"retry":"none"}`, verdict: delivery.Refused, category: delivery.Permanent, code: "HTTP_503", noRetry: true},
		"async 422 and none":      {mode: http.Async, status: 422, body: `{"retry":"NONE","errorMessage":"bad"}`, verdict: delivery.Refused, category: delivery.Permanent, code: "HTTP_422", noRetry: true},
		"a redirect goes nowhere": {mode: http.Sync, status: 307, header: "Location: /elsewhere", verdict: delivery.Refused, category: delivery.Config, code: "HTTP_307", server: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBackend(t, false, func(w nethttp.ResponseWriter, r *nethttp.Request) {
				if n, v, ok := strings.Cut(c.header, ": "); ok {
					w.Header().Set(n, v)
				}
				says(c.status, c.body)(w, r)
			})
			out := open(t, config(b.URL), c.mode).Forward(t.Context(), forwardtest.Document(100))
			if out.Verdict != c.verdict || out.Answer.Category != c.category || out.Answer.Code != c.code || out.C4Country != c.country ||
				out.NoRetry != c.noRetry || out.RetryAfter != c.after || out.Server != c.server {
				t.Errorf("%+v", out)
			}
			if b.requests() != 1 {
				t.Errorf("%d requests", b.requests())
			}
		})
	}
}

func TestConnectionsAreKept(t *testing.T) {
	t.Parallel()
	b := newBackend(t, false, says(503, `{"errorMessage":"later"}`))
	f := open(t, config(b.URL), http.Sync)
	for range 10 {
		f.Forward(t.Context(), forwardtest.Document(50_000))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conns != 1 {
		t.Errorf("%d connections for 10 documents", b.conns)
	}
}

// On a kept connection net/http would send again what has an idempotency key, if
// it could.
func TestNothingIsSentTwiceUnseen(t *testing.T) {
	t.Parallel()
	var answered atomic.Bool
	b := newBackend(t, false, func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if answered.Swap(true) {
			hangUp(w, r)
		}
	})
	cfg := config(b.URL)
	cfg.SigningSecrets = nil
	f := open(t, cfg, http.Async)
	if out := f.Forward(t.Context(), forwardtest.Document(100)); out.Verdict != delivery.Accepted {
		t.Fatalf("%+v", out)
	}
	if out := f.Forward(t.Context(), forwardtest.Document(100)); out.Verdict != delivery.Unknown {
		t.Errorf("%+v", out)
	}
	if b.requests() != 2 {
		t.Errorf("%d requests for two documents", b.requests())
	}
}

func TestTimeouts(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(*http.Config){
		"of the answer": func(c *http.Config) { c.ResponseTimeout = 50 * time.Millisecond },
		"of the whole":  func(c *http.Config) { c.ResponseTimeout, c.Timeout = 300*time.Millisecond, 300*time.Millisecond },
	} {
		b := newBackend(t, false, hold)
		cfg := config(b.URL)
		alter(&cfg)
		out := open(t, cfg, http.Sync).Forward(t.Context(), forwardtest.Document(100))
		if out.Verdict != delivery.Unknown || out.Answer.Code != forward.CodeTimeout {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// raw is a server of bytes: each connection is handed to serve.
func raw(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return "http://" + l.Addr().String()
}

// Whatever happens before the last byte is known, whoever ends it.
func TestBeforeTheLastByte(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		serve func(net.Conn)
		code  string
	}{
		"hung up at once": {func(net.Conn) {}, forward.CodeLost},
		"hung up within":  {func(c net.Conn) { _, _ = io.CopyN(io.Discard, c, 1<<20) }, forward.CodeLost},
		"success too early": {func(c net.Conn) {
			_, _ = c.Read(make([]byte, 100))
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
		}, forward.CodeEarly},
		"refused early": {func(c net.Conn) {
			_, _ = c.Read(make([]byte, 100))
			_, _ = io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			_, _ = io.CopyN(io.Discard, c, 1<<20) // so that the answer is not lost in a reset
		}, "HTTP_413"},
	} {
		cfg := config(raw(t, c.serve))
		cfg.SigningSecrets = nil
		d := forwardtest.Document(64 << 20) // more than any buffer between
		asked := 0
		d.Proceed = func() error { asked++; return nil }
		out := open(t, cfg, http.Sync).Forward(t.Context(), d)
		// A reset may overtake the early answer; then it is lost, and as well known.
		if out.Verdict != delivery.Refused || out.Answer.Code != c.code && out.Answer.Code != forward.CodeLost || asked != 0 {
			t.Errorf("%s: asked %d times, %+v", name, asked, out)
		}
	}
}

func TestAddressesAndCertificates(t *testing.T) {
	t.Parallel()
	b := newBackend(t, true, says(200, "{}"))
	for name, c := range map[string]struct {
		alter    func(*http.Config)
		category delivery.Category
		code     string
	}{
		"private": {func(c *http.Config) { c.AllowPrivate = false }, delivery.Config, forward.CodeAddress},
		"private by its name": {func(c *http.Config) {
			c.AllowPrivate, c.Endpoint = false, strings.Replace(b.URL, "127.0.0.1", "localhost", 1)
		}, delivery.Config, forward.CodeAddress},
		"unknown authority": {func(c *http.Config) { c.CAFile = "" }, delivery.Transient, forward.CodeTLS},
		"another name":      {func(c *http.Config) { c.Endpoint = strings.Replace(b.URL, "127.0.0.1", "localhost", 1) }, delivery.Transient, forward.CodeTLS},
		"no TLS there": {func(c *http.Config) {
			c.Endpoint = strings.Replace(newBackend(t, false, says(200, "{}")).URL, "http:", "https:", 1)
		}, delivery.Transient, forward.CodeTLS},
		"no such name":     {func(c *http.Config) { c.Endpoint = "https://nowhere.invalid/" }, delivery.Transient, forward.CodeDial},
		"plain and public": {func(c *http.Config) { c.Endpoint = "http://192.0.2.1/" }, delivery.Config, forward.CodeAddress},
	} {
		cfg := config(b.URL)
		cfg.CAFile = writeCA(t, b.Certificate().Raw)
		c.alter(&cfg)
		out := open(t, cfg, http.Sync).Forward(t.Context(), forwardtest.Document(10))
		if out.Verdict != delivery.Refused || out.Answer.Category != c.category || out.Answer.Code != c.code || !out.Server {
			t.Errorf("%s: %+v", name, out)
		}
	}
	if b.requests() != 0 {
		t.Errorf("%d requests", b.requests())
	}
}
