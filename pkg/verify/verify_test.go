package verify_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/verify"
	"github.com/posthouse-io/posthouse/pkg/verify/verifytest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "s3cr3t-token-of-ours"

// server is a scripted verifier for one test.
func server(t *testing.T, script ...verifytest.Step) *verifytest.Server {
	t.Helper()
	s, err := verifytest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	s.Script(script...)
	return s
}

// config asks the verifiers a, b, ... at the addresses.
func config(urls ...string) verify.Config {
	c := verify.Defaults()
	c.AllowPrivate = true
	c.Timeout = 20 * time.Second
	for i, u := range urls {
		c.Verifiers = append(c.Verifiers, string(rune('a'+i))+"="+u)
	}
	c.Tokens = []string{"a=" + token}
	return c
}

func set(t *testing.T, c verify.Config) *verify.Set {
	t.Helper()
	s, err := verify.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func paper(body []byte) verify.Document {
	return verify.Document{
		ID: delivery.NewID(), Direction: verify.Inbound, Kind: document.Business, Tenant: "acme", SBDHInstanceID: "sbdh 1\r\nX: y", SenderID: "iso6523-actorid-upis::0088:1",
		ReceiverID: "iso6523-actorid-upis::0088:2", DocTypeID: "busdox-docid-qns::urn:x##y", ProcessID: "p::q", C1Country: "AT",
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		Size:        int64(len(body)), SHA256: sha256.Sum256(body),
		Open: func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil },
	}
}

var invoice = bytes.Repeat([]byte("<Invoice/>"), 10_000)

// Every way in which a verifier may behave, and what it comes to.
func TestWhatAnAnswerComesTo(t *testing.T) {
	t.Parallel()
	const (
		P = document.VerdictPassed
		X = document.VerdictRejected
		U = document.VerdictUnavailable
	)
	warning := document.Issue{Severity: document.BW, Text: "hm"}
	for name, c := range map[string]struct {
		step    verifytest.Step
		verdict document.Verdict
		code    string
		issues  int
		after   time.Duration
	}{
		"passes":                      {verifytest.Pass(), P, "", 0, 0},
		"passes with a warning":       {verifytest.Pass(warning), P, "", 1, 0},
		"passes with 201":             {verifytest.Say(201, P), P, "", 0, 0},
		"rejects":                     {verifytest.Reject(verifytest.Broken(), warning), X, "", 2, 0},
		"rejects without a word":      {verifytest.Reject(), X, "", 0, 0},
		"rejects with 422":            {verifytest.Say(422, X, verifytest.Broken()), X, "", 1, 0},
		"rejects with 400":            {verifytest.Say(400, X, verifytest.Broken()), X, "", 1, 0},
		"slow, within its time":       {verifytest.Slow(50*time.Millisecond, verifytest.Pass()), P, "", 0, 0},
		"says that it cannot look":    {verifytest.Say(200, U), U, "VERIFIER_UNAVAILABLE", 0, 0},
		"passes with 400":             {verifytest.Say(400, P), U, "HTTP_400", 0, 0},
		"400 without an answer":       {verifytest.Fail(400), U, "HTTP_400", 0, 0},
		"404 of a wrong path":         {verifytest.Fail(404), U, "HTTP_404", 0, 0},
		"401 whatever it says":        {verifytest.Say(401, X, verifytest.Broken()), U, "HTTP_401", 0, 0},
		"403 whatever it says":        {verifytest.Say(403, X, verifytest.Broken()), U, "HTTP_403", 0, 0},
		"408":                         {verifytest.Say(408, X), U, "HTTP_408", 0, 0},
		"429 with Retry-After":        {verifytest.Busy(429, 90*time.Second), U, "HTTP_429", 0, 90 * time.Second},
		"503 with Retry-After":        {verifytest.Busy(503, 2*time.Hour), U, "HTTP_503", 0, time.Hour},
		"500":                         {verifytest.Fail(500), U, "HTTP_500", 0, 0},
		"500 whatever it says":        {verifytest.Say(500, X, verifytest.Broken()), U, "HTTP_500", 0, 0},
		"502 that passes":             {verifytest.Say(502, P), U, "HTTP_502", 0, 0},
		"a page of a proxy":           {verifytest.Garbage(), U, "ANSWER_INVALID", 0, 0},
		"nothing":                     {verifytest.Answer(204, ""), U, "ANSWER_INVALID", 0, 0},
		"null":                        {verifytest.Answer(200, "null"), U, "ANSWER_INVALID", 0, 0},
		"no verdict":                  {verifytest.Answer(200, `{"issues":[]}`), U, "ANSWER_INVALID", 0, 0},
		"a verdict of its own":        {verifytest.Say(200, "ok"), U, "ANSWER_INVALID", 0, 0},
		"passes with something fatal": {verifytest.Pass(verifytest.Broken()), U, "ANSWER_INVALID", 0, 0},
		"a severity of its own":       {verifytest.Reject(document.Issue{Severity: "ERROR"}), U, "ANSWER_INVALID", 0, 0},
		"huge":                        {verifytest.Huge(1 << 20), U, "ANSWER_INVALID", 0, 0},
		"cut":                         {verifytest.Cut(), U, "CONNECTION_FAILED", 0, 0},
		"dropped":                     {verifytest.Drop(), U, "CONNECTION_FAILED", 0, 0},
		"redirects":                   {verifytest.Redirect("http://127.0.0.1:1/"), U, "REDIRECT_REFUSED", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t, c.step)
			s.Always(verifytest.Fail(599)) // nothing may be asked twice
			r := set(t, config(s.URL)).Verify(t.Context(), paper(invoice))[0]
			if r.Verdict != c.verdict || r.Code != c.code || len(r.Issues) != c.issues || r.RetryAfter != c.after || r.Ours {
				t.Errorf("%+v", r)
			}
			if r.Server != (c.verdict == U) || r.Verifier != "a" || r.Key != "verifier$a" || (r.Text == "") != (c.verdict != U) {
				t.Errorf("%+v", r)
			}
			if n := len(s.Questions()); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// The verifier gets the bytes, whole and with their metadata made safe.
func TestWhatAVerifierIsAsked(t *testing.T) {
	t.Parallel()
	s := server(t)
	d := paper(invoice)
	set(t, config(s.URL)).Verify(t.Context(), d)
	q := s.Questions()[0]
	if q.Method != http.MethodPost || q.Path != "/verify" || q.SHA256 != d.SHA256 || !q.Whole {
		t.Errorf("%+v", q)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/xml", "Authorization": "Bearer " + token, "Posthouse-Document-Id": d.ID.String(), "Posthouse-Direction": "inbound", "Posthouse-Document-Kind": "business",
		"Posthouse-Tenant": "acme", "Posthouse-Sbdh-Id": "sbdh%201%0D%0AX%3A%20y", "Posthouse-Sender-Id": "iso6523-actorid-upis%3A%3A0088%3A1", "Posthouse-C1-Country": "AT", "Traceparent": d.Traceparent, "X": "",
	} {
		if got := q.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// All are asked at once, each with its own limit; a hanging one costs its own time
// only, and a rejection wins over it.
func TestSeveralVerifiers(t *testing.T) {
	t.Parallel()
	a, b, c := server(t, verifytest.Reject(verifytest.Broken())), server(t, verifytest.Hang()), server(t, verifytest.Pass())
	cfg := config(a.URL, b.URL, c.URL)
	cfg.Timeouts = []string{"b=200ms"}
	begin := time.Now()
	results := set(t, cfg).Verify(t.Context(), paper(invoice))
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	for i, want := range []struct {
		name    string
		verdict document.Verdict
		code    string
	}{{"a", "rejected", ""}, {"b", "unavailable", "TIMEOUT"}, {"c", "passed", ""}} {
		if r := results[i]; r.Verifier != want.name || r.Verdict != want.verdict || r.Code != want.code {
			t.Errorf("%+v", r)
		}
	}
	if got := document.Combine(results); got.Verdict != document.VerdictRejected || got.Away[0] != "b" {
		t.Errorf("%+v", got)
	}
}

// Asked in parallel, and not one after another: each answers only when both were
// asked.
func TestVerifiersAreAskedAtTheSameTime(t *testing.T) {
	t.Parallel()
	var n atomic.Int32
	both := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
		case <-r.Context().Done():
			return
		}
		_, _ = io.WriteString(w, `{"verdict":"passed"}`)
	}))
	t.Cleanup(srv.Close)
	for _, r := range set(t, config(srv.URL, srv.URL)).Verify(t.Context(), paper(invoice)) {
		if r.Verdict != document.VerdictPassed {
			t.Errorf("%+v", r)
		}
	}
}

// An outage and the end of it: the same set, the same connections.
func TestAVerifierComesBack(t *testing.T) {
	t.Parallel()
	s := server(t, append(verifytest.Times(3, verifytest.Fail(503)), verifytest.Drop())...)
	v := set(t, config(s.URL))
	for i := range 6 {
		want := document.VerdictUnavailable
		if i >= 4 {
			want = document.VerdictPassed
		}
		if r := v.Verify(t.Context(), paper(invoice))[0]; r.Verdict != want {
			t.Errorf("question %d: %+v", i+1, r)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if r := v.Verify(t.Context(), paper(invoice))[0]; r.Verdict != document.VerdictUnavailable || r.Code != verify.CodeConnection || !r.Server {
		t.Errorf("nobody listens: %+v", r)
	}
}

// What is our own fault says nothing of the verifier or the document.
func TestFaultsOfOurOwn(t *testing.T) {
	t.Parallel()
	body := func(open func(ctx context.Context) (io.ReadCloser, error)) verify.Document {
		d := paper(invoice)
		d.Open = open
		return d
	}
	reader := func(r io.Reader) func(context.Context) (io.ReadCloser, error) {
		return func(context.Context) (io.ReadCloser, error) { return io.NopCloser(r), nil }
	}
	other := bytes.Repeat([]byte("<Invoicf/>"), 10_000)
	empty := paper(nil)
	for name, d := range map[string]verify.Document{
		"cannot be opened": body(func(context.Context) (io.ReadCloser, error) { return nil, errors.New("no such object") }),
		"breaks off":       body(reader(io.MultiReader(bytes.NewReader(invoice[:5000]), broken{}))),
		"too short":        body(reader(bytes.NewReader(invoice[:len(invoice)-1]))),
		"too long":         body(reader(io.MultiReader(bytes.NewReader(invoice), strings.NewReader("x")))),
		"another hash":     body(reader(bytes.NewReader(other))),
		"empty":            empty,
		"no way to open":   body(nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			r := set(t, config(s.URL)).Verify(t.Context(), d)[0]
			if r.Verdict != document.VerdictNone || !r.Ours || r.Interrupted || r.Server || r.Code != verify.CodePayload || r.Verifier != "a" {
				t.Errorf("%+v", r)
			}
			for _, q := range s.Questions() {
				if q.Whole {
					t.Error("the verifier got a whole document that is not the one received")
				}
			}
		})
	}
	t.Run("slow store", func(t *testing.T) {
		t.Parallel()
		s := server(t)
		c := config(s.URL)
		c.Timeout = 100 * time.Millisecond
		r := set(t, c).Verify(t.Context(), body(func(ctx context.Context) (io.ReadCloser, error) { return io.NopCloser(stuck{ctx}), nil }))[0]
		if !r.Ours || r.Server || r.Code != verify.CodePayload {
			t.Errorf("%+v", r)
		}
	})
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("disk on fire") }

type stuck struct{ ctx context.Context }

func (s stuck) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, s.ctx.Err() }

// Told to stop, it stops, and says so: a shutdown rejects no document.
func TestStop(t *testing.T) {
	t.Parallel()
	s := server(t, verifytest.Hang())
	v := set(t, config(s.URL))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan document.Result)
	go func() { done <- v.Verify(ctx, paper(invoice))[0] }()
	if err := s.Wait(t.Context().Done(), 1); err != nil {
		t.Fatal(err)
	}
	cancel()
	if r := <-done; !r.Ours || !r.Interrupted || r.Code != verify.CodeInterrupted || r.Server {
		t.Errorf("%+v", r)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if r := v.Verify(t.Context(), paper(invoice))[0]; !r.Interrupted {
		t.Errorf("after Close: %+v", r)
	}
}

// A verifier that takes the connection and never reads is its own fault, even when
// most of the document has not left.
func TestAVerifierThatDoesNotRead(t *testing.T) {
	t.Parallel()
	s := server(t, verifytest.Early(verifytest.Hang()))
	c := config(s.URL)
	c.Timeout = 500 * time.Millisecond
	r := set(t, c).Verify(t.Context(), paper(make([]byte, 32<<20)))[0]
	if r.Verdict != document.VerdictUnavailable || r.Code != verify.CodeTimeout || !r.Server || r.Ours {
		t.Errorf("%+v", r)
	}
}

// An answer before the document has left: a rejection may need no more than the
// beginning, a pass needs all of it.
func TestAnswersBeforeTheEnd(t *testing.T) {
	t.Parallel()
	for says, want := range map[string]document.Result{
		`{"verdict":"rejected"}`: {Verdict: document.VerdictRejected},
		`{"verdict":"passed"}`:   {Verdict: document.VerdictUnavailable, Code: verify.CodeEarly},
	} {
		over := make(chan struct{})
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(says)))
			_, _ = io.WriteString(w, says)
			_ = http.NewResponseController(w).Flush()
			<-over // returning would close the connection, and the answer might be lost with it
		}))
		r := set(t, config(srv.URL)).Verify(t.Context(), paper(make([]byte, 32<<20)))[0]
		close(over)
		srv.Close()
		if r.Verdict != want.Verdict || r.Code != want.Code || r.Ours {
			t.Errorf("%s: %+v", says, r)
		}
	}
}

// Without permission no connection is made to an inner address, whatever the name.
func TestPrivateAddressesAreRefused(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(verifytest.New().Handler())
	t.Cleanup(srv.Close)
	for _, host := range []string{"127.0.0.1", "localhost"} {
		c := config(strings.Replace(srv.URL, "127.0.0.1", host, 1))
		c.AllowPrivate = false
		c.CAFile = authority(t, srv)
		if r := set(t, c).Verify(t.Context(), paper(invoice))[0]; r.Verdict != document.VerdictUnavailable || r.Code != verify.CodeAddress {
			t.Errorf("%s: %+v", host, r)
		}
	}
}

func TestTLSIsVerified(t *testing.T) {
	t.Parallel()
	s := verifytest.New()
	srv := httptest.NewTLSServer(s.Handler())
	t.Cleanup(srv.Close)
	c := config(srv.URL)
	if r := set(t, c).Verify(t.Context(), paper(invoice))[0]; r.Verdict != document.VerdictUnavailable || r.Code != verify.CodeConnection || !strings.Contains(r.Text, "certificate") {
		t.Errorf("an unknown authority: %+v", r)
	}
	if len(s.Questions()) != 0 {
		t.Error("the document went to a stranger")
	}
	c.CAFile = authority(t, srv)
	if r := set(t, c).Verify(t.Context(), paper(invoice))[0]; r.Verdict != document.VerdictPassed {
		t.Errorf("%+v", r)
	}
}

func authority(t *testing.T, srv *httptest.Server) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// A verifier that repeats our token does not get it into the record.
func TestTheTokenIsHidden(t *testing.T) {
	t.Parallel()
	echo := document.Issue{Code: token, Severity: document.BV, Text: "Bearer " + token, Location: "/" + token}
	s := server(t, verifytest.Reject(echo), verifytest.Answer(500, token), verifytest.Answer(200, token))
	v := set(t, config(s.URL))
	for range 3 {
		r := v.Verify(t.Context(), paper(invoice))[0]
		for _, text := range append([]string{r.Text, r.Code}, flat(r.Issues)...) {
			if strings.Contains(text, token) {
				t.Errorf("%+v", r)
			}
		}
	}
}

func flat(issues []document.Issue) (texts []string) {
	for _, i := range issues {
		texts = append(texts, i.Code, i.Text, i.Location)
	}
	return texts
}

// A guard may stand in front of a verifier, such as a breaker.
type shut struct{ verify.Asker }

func (s shut) Ask(context.Context, verify.Document) document.Result {
	return document.Result{Verifier: s.Name(), Key: s.Key(), Verdict: document.VerdictUnavailable, Code: "BREAKER_OPEN"}
}

func TestAGuardMayStandInBetween(t *testing.T) {
	t.Parallel()
	s := server(t)
	askers := set(t, config(s.URL)).Askers()
	askers[0] = shut{askers[0]}
	if r := verify.All(t.Context(), askers, paper(invoice))[0]; r.Code != "BREAKER_OPEN" || r.Key != "verifier$a" {
		t.Errorf("%+v", r)
	}
	if len(s.Questions()) != 0 {
		t.Error("the verifier was asked")
	}
}

// A large document is streamed: what is asked for at once stays small.
func TestALargeDocumentIsStreamed(t *testing.T) {
	t.Parallel()
	const size = 50 << 20
	sum := sha256.New()
	if _, err := io.CopyN(sum, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	d := paper([]byte("x"))
	var largest atomic.Int64
	d.Size, d.SHA256 = size, [32]byte(sum.Sum(nil))
	d.Open = func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.LimitReader(zeros{&largest}, size)), nil
	}
	s := server(t)
	if r := set(t, config(s.URL)).Verify(t.Context(), d)[0]; r.Verdict != document.VerdictPassed {
		t.Errorf("%+v", r)
	}
	if q := s.Questions()[0]; q.Size != size || largest.Load() > 1<<20 {
		t.Errorf("%d bytes, %d at once", q.Size, largest.Load())
	}
}

type zeros struct{ largest *atomic.Int64 }

func (z zeros) Read(b []byte) (int, error) {
	clear(b)
	if z.largest != nil {
		z.largest.Store(max(z.largest.Load(), int64(len(b))))
	}
	return len(b), nil
}
