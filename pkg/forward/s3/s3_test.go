package s3_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/forwardtest"
	"github.com/posthouse-io/posthouse/pkg/forward/s3"
)

func TestObjectAndSidecar(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	cfg := config(s.URL)
	cfg.WriteMetadata = true
	d := forwardtest.Document(5000)
	out := open(t, cfg, nil).Forward(t.Context(), d)
	key := "in/box/" + d.SBDHInstanceID + "_" + d.ID.String()
	if out.Verdict != delivery.Accepted || out.RemoteID != key+".xml" || out.Confirmed || out.Remote == "" {
		t.Fatalf("%+v", out)
	}
	_, others := s.keys(t)
	if len(others) != 1 || others[0] != key+".json" {
		t.Errorf("%q", others)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.heads[len(s.heads)-1]
	if h.Get("X-Amz-Meta-Posthouse-Document-Id") != d.ID.String() || h.Get("X-Amz-Content-Sha256") != hex.EncodeToString(d.SHA256[:]) || h.Get("Content-Type") != "application/xml" {
		t.Errorf("%v", h)
	}
	if len(s.heads) != 2 {
		t.Errorf("%d requests for an object and its sidecar", len(s.heads))
	}
}

// told is a backend for links.
type told struct {
	got  []forward.Document
	body []byte
	out  forward.Outcome
	shut bool
}

func (n *told) Forward(ctx context.Context, d forward.Document) forward.Outcome {
	n.got = append(n.got, d)
	r, err := d.Open(ctx)
	if err == nil {
		n.body, err = io.ReadAll(r)
	}
	if err == nil {
		err = d.Proceed()
	}
	if err != nil {
		return forward.Interrupted(forward.PhaseUpload, err)
	}
	return n.out
}

func (n *told) Close() error { n.shut = true; return nil }

func TestLink(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	n := &told{out: forward.Delivered("backend", "")}
	n.out.Confirmed, n.out.C4Country = true, "AT"
	f, err := s3.New(config(s.URL), n)
	if err != nil {
		t.Fatal(err)
	}
	d := forwardtest.Document(5000)
	asked := 0
	d.Proceed = func() error { asked++; return nil }
	out := f.Forward(t.Context(), d)
	if out.Verdict != delivery.Accepted || !out.Confirmed || out.C4Country != "AT" || asked != 2 || !strings.HasSuffix(out.RemoteID, d.ID.String()+".xml") {
		t.Errorf("asked %d times, %+v", asked, out)
	}
	var l s3.Link
	if err := json.Unmarshal(n.body, &l); err != nil || l.Bucket != bucket || l.Key != out.RemoteID || l.Document.Size != 5000 || l.Document.ID != d.ID {
		t.Errorf("%v %s", err, n.body)
	}
	if g := n.got[0]; g.ID != d.ID || g.ContentType != "application/json" || g.Size != int64(len(n.body)) || g.SHA256 != sha256.Sum256(n.body) || g.Check() != nil {
		t.Errorf("%+v", g)
	}

	// What became of the link is the outcome; without an object there is none.
	n.out = forward.Refused(delivery.Transient, forward.PhaseFinal, "HTTP_503", "", true)
	if out := f.Forward(t.Context(), d); out.Verdict != delivery.Refused || out.Answer.Code != "HTTP_503" {
		t.Errorf("%+v", out)
	}
	links := len(n.got)
	d.Proceed = func() error { return errors.New("no") }
	if out := f.Forward(t.Context(), d); out.Verdict != delivery.Interrupted || len(n.got) != links {
		t.Errorf("%d links, %+v", len(n.got), out)
	}
	if err := f.Close(); err != nil || !n.shut {
		t.Error("the notifier is not closed")
	}
}

func TestAnswers(t *testing.T) {
	t.Parallel()
	for code, c := range map[string]struct {
		status   int
		category delivery.Category
		server   bool
	}{
		"SlowDown":         {503, delivery.Quota, true},
		"InternalError":    {500, delivery.Transient, true},
		"BadDigest":        {400, delivery.Transient, true},
		"AccessDenied":     {403, delivery.Auth, true},
		"NoSuchBucket":     {404, delivery.Config, true},
		"EntityTooLarge":   {400, delivery.InvalidInput, false},
		"InvalidArgument":  {400, delivery.Permanent, false},
		"OperationAborted": {409, delivery.Transient, true},
	} {
		requests := 0
		s := newStore(t)
		s.before = func(w http.ResponseWriter, r *http.Request) bool {
			requests++
			_, _ = io.Copy(io.Discard, r.Body)
			fault(w, c.status, code, "x")
			return true
		}
		out := open(t, config(s.URL), nil).Forward(t.Context(), forwardtest.Document(100))
		if out.Verdict != delivery.Refused || out.Answer.Category != c.category || out.Server != c.server || out.Answer.Code != code || requests != 1 {
			t.Errorf("%s: %d requests, %+v", code, requests, out)
		}
	}
}

func TestTimeoutOfTheAnswer(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	s.after = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	cfg := config(s.URL)
	cfg.ResponseTimeout = 50 * time.Millisecond
	out := open(t, cfg, nil).Forward(t.Context(), forwardtest.Document(100))
	if out.Verdict != delivery.Unknown || out.Answer.Code != forward.CodeTimeout {
		t.Errorf("%+v", out)
	}
}

func TestPrivateAddressesAreRefused(t *testing.T) {
	t.Parallel()
	s := httptest.NewTLSServer(http.NotFoundHandler())
	defer s.Close()
	cfg := config(s.URL)
	cfg.AllowPrivate = false
	out := open(t, cfg, nil).Forward(t.Context(), forwardtest.Document(100))
	if out.Verdict != delivery.Refused || out.Answer.Code != forward.CodeAddress || out.Answer.Category != delivery.Config {
		t.Errorf("%+v", out)
	}
	cfg.AllowPrivate = true // but its authority is unknown
	out = open(t, cfg, nil).Forward(t.Context(), forwardtest.Document(100))
	if out.Verdict != delivery.Refused || out.Answer.Code != forward.CodeTLS {
		t.Errorf("%+v", out)
	}
}

// A store that keeps nothing shows what the forwarder itself needs. Not parallel.
func TestLittleMemory(t *testing.T) {
	var got int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"x"`)
	}))
	defer server.Close()
	f := open(t, config(server.URL), nil)
	const size = 50 << 20
	piece := make([]byte, 1<<20)
	sum := sha256.New()
	for range size / len(piece) {
		sum.Write(piece)
	}
	d := forwardtest.Document(10)
	d.Size, d.SHA256 = size, [32]byte(sum.Sum(nil))
	var high, base uint64
	d.Open = func(context.Context) (io.ReadCloser, error) {
		base = heap()
		return io.NopCloser(&zeroes{look: func() { high = max(high, heap()) }}), nil
	}
	if out := f.Forward(t.Context(), d); out.Verdict != delivery.Accepted || got < size {
		t.Fatalf("%d bytes: %+v", got, out)
	}
	if high > base+16<<20 {
		t.Errorf("%d bytes of the heap", high-base)
	}
	t.Logf("heap at its highest: %.1f MiB above %.1f MiB", float64(int64(high)-int64(base))/(1<<20), float64(base)/(1<<20))
}

// zeroes are 50 MiB, and a look each 4 MiB.
type zeroes struct {
	read int
	look func()
}

func (z *zeroes) Read(b []byte) (int, error) {
	n := min(len(b), 50<<20-z.read)
	if n == 0 {
		return 0, io.EOF
	}
	clear(b[:n])
	if (z.read+n)>>22 != z.read>>22 {
		z.look()
	}
	z.read += n
	return n, nil
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestConfigNamesEachFault(t *testing.T) {
	t.Parallel()
	bad := s3.Config{Bucket: "A", Endpoint: "http://u:hunter2@x.test/p", AccessKeyID: "a", CAFile: "/nowhere", KeyPrefix: "../x", Pattern: "x", Link: "maybe"}
	err := bad.Check()
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{"_BUCKET", "_ENDPOINT", "_ACCESS_KEY_ID", "_CA_FILE", "_KEY_PREFIX", "_FILENAME_PATTERN", "_LINK", "_CONNECT_TIMEOUT", "_RESPONSE_TIMEOUT", "_S3_TIMEOUT"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	if s := err.Error() + bad.String() + bad.GoString(); strings.Contains(s, "hunter2") {
		t.Error("a fault tells a secret")
	}
	good := config("https://s3.test")
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	if strings.Contains(good.String()+good.GoString(), secret) {
		t.Error("the secret is shown")
	}
}
