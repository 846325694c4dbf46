package forward_test

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/forwardtest"
)

func TestZeroOutcomeIsUnknown(t *testing.T) {
	t.Parallel()
	if (forward.Outcome{}).Verdict != delivery.Unknown {
		t.Error("a forgotten case would not be unknown")
	}
}

// However a payload is read, its last byte comes only when everything is right.
func TestPayloadHoldsTheLastByte(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := forwardtest.Document(rapid.IntRange(1, 300).Draw(t, "size"))
		right := d.Size
		fault := rapid.SampledFrom([]string{"", "short", "long", "hash", "stop"}).Draw(t, "fault")
		asked := 0
		last := func() error { asked++; return nil }
		switch fault {
		case "short":
			d.Size += int64(rapid.IntRange(1, 5).Draw(t, "more"))
		case "long":
			if d.Size = int64(rapid.IntRange(0, int(d.Size)-1).Draw(t, "less")); d.Size == 0 {
				return
			}
		case "hash":
			d.SHA256[rapid.IntRange(0, 31).Draw(t, "byte")] ^= 1
		case "stop":
			last = func() error { return errors.New("the lease is gone") }
		}
		whole := d.Open
		how := rapid.IntRange(0, 3).Draw(t, "how")
		d.Open = func(ctx context.Context) (io.ReadCloser, error) {
			r, err := whole(ctx)
			var out io.Reader = r
			switch how {
			case 1:
				out = iotest.OneByteReader(out)
			case 2:
				out = iotest.HalfReader(out)
			case 3:
				out = iotest.DataErrReader(out)
			}
			return io.NopCloser(out), err
		}
		p, err := forward.Open(t.Context(), &d, last)
		if err != nil {
			t.Fatal(err)
		}
		got, buf := 0, make([]byte, rapid.IntRange(1, 400).Draw(t, "buffer"))
		for err == nil {
			var n int
			n, err = p.Read(buf)
			got += n
		}
		if cerr := p.Close(); cerr != nil {
			t.Fatal(cerr)
		}
		if fault == "" {
			if !errors.Is(err, io.EOF) || int64(got) != right || !p.Released() || asked != 1 || p.Failure() != nil {
				t.Fatalf("%d of %d bytes, asked %d times: %v", got, right, asked, err)
			}
			return
		}
		if errors.Is(err, io.EOF) || int64(got) >= d.Size || p.Released() || asked != 0 || p.Failure() == nil {
			t.Fatalf("%s: %d of %d bytes, asked %d times: %v", fault, got, d.Size, asked, err)
		}
		want := delivery.Refused
		if fault == "stop" {
			want = delivery.Interrupted
		}
		if out := forward.Blame(t.Context(), p.Failure()); out.Verdict != want {
			t.Fatalf("%s: %+v", fault, out)
		}
		if n, err := p.Read(buf); n != 0 || err == nil {
			t.Fatal("read after the end")
		}
	})
}

func TestPayloadEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	d := forwardtest.Document(100)
	p, err := forward.Open(ctx, &d, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.ReadAll(p); !errors.Is(err, context.Canceled) || forward.Blame(ctx, err).Verdict != delivery.Interrupted {
		t.Error(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	fresh, err := forward.Open(t.Context(), &d, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = fresh.Close()
	if n, err := fresh.Read(make([]byte, 10)); n != 0 || err == nil || fresh.Released() {
		t.Error("read after Close")
	}
}

func TestReasonHidesTheURL(t *testing.T) {
	t.Parallel()
	err := &url.Error{Op: "Put", URL: "https://x.test/hunter2", Err: &url.Error{Op: "Put", URL: "hunter2", Err: errors.New("refused\r\nnow")}}
	if got := forward.Reason(err); got != "refused  now" {
		t.Errorf("%q", got)
	}
	if forward.Reason(nil) != "" {
		t.Error("no error has no reason")
	}
}

func TestParseAnswer(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]forward.Answer{
		`{}`:                         {},
		`{"countryCodeC4":"at"}`:     {C4Country: "AT"},
		`{"countryCodeC4":" NO "}`:   {C4Country: "NO"},
		`{"countryCodeC4":null}`:     {},
		`{"countryCodeC4":"NOR"}`:    {},
		`{"countryCodeC4":"Ä"}`:      {},
		`{"retry":"later"}`:          {},
		`{"retry":"None","x":[1,2]}`: {NoRetry: true},
		`{"errorMessage":"why"}`:     {Message: "why"},
	} {
		if got, err := forward.ParseAnswer([]byte(in)); err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", in, got, err, want)
		}
	}
	for _, in := range []string{"", " ", "null", "[]", "7", `"x"`, "{", "{} {}", `{"retry":1}`, `{"countryCodeC4":["AT"]}`, "<html>secret</html>", strings.Repeat(" ", forward.MaxAnswer) + "{}"} {
		if got, err := forward.ParseAnswer([]byte(in)); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%.20q: %+v %v", in, got, err)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"countryCodeC4":"AT","retry":"none","errorMessage":"x"}`))
	f.Add([]byte(`[[[[`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := forward.ParseAnswer(b)
		if err != nil && a != (forward.Answer{}) || a.C4Country != "" && (len(a.C4Country) != 2 || strings.ToUpper(a.C4Country) != a.C4Country) {
			t.Errorf("%q: %+v %v", b, a, err)
		}
	})
}

func TestEscape(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "~", "a-B_9": "a-B_9", ".": "%2E", "..": "%2E%2E", "a.b": "a.b", "a..b": "a.%2Eb", "../x": "%2E%2E%2Fx", "~": "%7E", "%": "%25", "ü": "%C3%BC", "0192:1": "0192%3A1",
		strings.Repeat("a", 40): strings.Repeat("a", 40), strings.Repeat("a", 41): strings.Repeat("a", 23) + "~2f7cad7f77dc3a47",
	} {
		got := forward.Escape(in, 40)
		if len(in) == 41 {
			got, want = got[:24], want[:24] // the hash is its own proof below
		}
		if got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestPatterns(t *testing.T) {
	t.Parallel()
	d := forwardtest.Document(1)
	d.SBDHInstanceID, d.Tenant = "x/y", "acme"
	id := d.ID.String()
	for in, want := range map[string]string{
		"{incoming-id}":                                id,
		"{datetime}_{incoming-id}":                     "20261103040506_" + id,
		"in-{tenant}.{sbdh-instance-id}_{incoming-id}": "in-acme.x%2Fy_" + id,
	} {
		p, err := forward.ParsePattern(in)
		if err != nil || p.Name(&d) != want {
			t.Errorf("%s: %q %v", in, p.Name(&d), err)
		}
	}
	for _, in := range []string{"", "x", "{sbdh-instance-id}", "{incoming-id", "{incoming-id}{nonsense}", "{incoming-id}/x", "../{incoming-id}", ".{incoming-id}", "{incoming-id}.", "a..{incoming-id}", "{incoming-id}{incoming-id}", "}{incoming-id}", "ü{incoming-id}", strings.Repeat("a", 100) + "{incoming-id}"} {
		if _, err := forward.ParsePattern(in); err == nil {
			t.Errorf("%q passed", in)
		}
	}
}

// Whatever a document says, its name is one plain file name, and no other
// document has it.
func FuzzNames(f *testing.F) {
	f.Add("../../etc/passwd", "acme", "{sbdh-instance-id}_{incoming-id}")
	f.Add("a\x00b\r\n", "..", "x.{tenant}{incoming-id}")
	f.Fuzz(func(t *testing.T, sbdh, tenant, pattern string) {
		p, err := forward.ParsePattern(pattern)
		if err != nil {
			return
		}
		d := forwardtest.Document(1)
		d.SBDHInstanceID, d.Tenant, d.ReceiverID = sbdh, tenant, sbdh
		for _, name := range []string{p.Name(&d) + ".xml", d.ReceiverFolder()} {
			if name == "" || len(name) > 255 || strings.HasPrefix(name, ".") || !filepath.IsLocal(name) || filepath.Base(name) != name || strings.ContainsAny(name, "/\\\x00:*?\"<>|\r\n") {
				t.Errorf("%q %q %q: %q", sbdh, tenant, pattern, name)
			}
		}
		if !strings.Contains(p.Name(&d), d.ID.String()) {
			t.Errorf("%q has no id", p.Name(&d))
		}
		back, err := url.PathUnescape(forward.Escape(sbdh, 3*len(sbdh)+20))
		if err != nil || sbdh != "" && back != sbdh {
			t.Errorf("%q comes back as %q: %v", sbdh, back, err)
		}
		if a, b := forward.Escape(sbdh, 20), forward.Escape(tenant, 20); sbdh != tenant && a == b || len(a) > 20 {
			t.Errorf("%q and %q are both %q", sbdh, tenant, a)
		}
	})
}

func TestNamesAreWritable(t *testing.T) {
	t.Parallel()
	p, err := forward.ParsePattern(strings.Repeat("a", 40) + "{sbdh-instance-id}{tenant}{datetime}{incoming-id}")
	if err != nil {
		t.Fatal(err)
	}
	d := forwardtest.Document(1)
	d.SBDHInstanceID, d.Tenant, d.ReceiverID = strings.Repeat("/", 500), strings.Repeat("ü", 500), strings.Repeat("/", 500)
	for _, n := range []string{p.Name(&d) + ".json", d.ReceiverFolder()} {
		if err := os.WriteFile(filepath.Join(t.TempDir(), n), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
}
