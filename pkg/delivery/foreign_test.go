package delivery_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

func TestBound(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "", "250 2.0.0 OK": "250 2.0.0 OK", "a\r\nb": "a  b", "\x00\x1b[31mred": "[31mred", "a\u0085b\u2028c\u2029d": "a b c d", "bad \xff\xfe utf": "bad    utf",
		"  kept inside  ": "kept inside", strings.Repeat("x", 600): strings.Repeat("x", 500), strings.Repeat("x", 499) + "ü": strings.Repeat("x", 499),
		strings.Repeat("x", 498) + " yz": strings.Repeat("x", 498) + " y",
	} {
		if got := delivery.Bound(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzBound(f *testing.F) {
	f.Add("550 5.1.1 \xff no such user\x00\r\n")
	f.Fuzz(func(t *testing.T, s string) {
		got := delivery.Bound(s)
		if len(got) > delivery.MaxText || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) || delivery.Bound(got) != got {
			t.Errorf("%q: %q", s, got)
		}
	})
}

func TestRequestFaultsNameTheField(t *testing.T) {
	t.Parallel()
	const good = `{"version":1,"id":"1","to":["a@example.test"],"subject":"s"`
	for body, want := range map[string]string{
		good + `}`:                                                   "",
		good + `,"ordering_key":"a b/ü"}`:                            "",
		good + `,"ordering_key":"a\u0000"}`:                          "ordering_key",
		good + `,"ordering_key":"a\nb"}`:                             "ordering_key",
		good + `,"ordering_key":"` + strings.Repeat("k", 129) + `"}`: "ordering_key",
		good + `,"frm":"x"}`:                                         "frm",
		good + `} {}`:                                                "after",
		good:                                                         "end",
		`[]`:                                                         "array",
		`{"version":2,"id":"1","to":["a"]}`:                          "version",
		`{"version":1,"to":["a"]}`:                                   "id",
		`{"version":1,"id":"a b","to":["a"]}`:                        "id",
		`{"version":1,"id":"1"}`:                                     "to",
		good + `,"class":"urgent"}`:                                  "class",
		good + `,"custom":[1]}`:                                      "custom",
		good + `,"custom":null}`:                                     "custom",
		good + `,"send_at":"2030-01-02T00:00:00Z","expires_at":"2030-01-01T00:00:00Z"}`: "expires_at",
	} {
		_, err := delivery.DecodeRequest([]byte(body), "")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", body, err, want)
		}
	}
	if _, err := delivery.DecodeRequest([]byte(good+"}"), "2"); err == nil {
		t.Error("two ids that differ are taken")
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add([]byte(`{"version":1,"id":"1","to":["a@example.test"],"subject":"s","custom":{"a":"\u0000"},"send_at":"2030-01-01T00:00:00Z"}`), "1")
	f.Add([]byte(`{"version":1,"id":"\ud800","ordering_key":"\u0000","attachments":[{"content":"AA=="}]}`), "")
	f.Fuzz(func(t *testing.T, body []byte, header string) {
		r, err := delivery.DecodeRequest(body, header)
		if err != nil {
			if text := err.Error(); len(text) > 2*delivery.MaxText || strings.ContainsAny(text, "\x00\n") {
				t.Errorf("%q", text)
			}
			return
		}
		// What is taken must be storable: as PostgreSQL text, and once more as JSON.
		for _, s := range []string{r.ID, r.OrderingKey} {
			if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
				t.Errorf("%q is taken and cannot be stored", s)
			}
		}
		if _, err := json.Marshal(r); err != nil {
			t.Error(err)
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	id := delivery.NewID()
	e := delivery.Event{ID: id, Version: 2, State: delivery.Sent, At: time.Unix(0, 0)}
	b, err := e.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"id":"x","version":-1}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if ev, err := delivery.DecodeEvent(body); err == nil {
			if _, err := ev.Encode(); err != nil && ev.At.Year() <= 9999 {
				t.Error(err)
			}
		}
	})
}

func TestEventIDs(t *testing.T) {
	t.Parallel()
	id := delivery.NewID()
	if got, version, err := delivery.ParseEventID(delivery.EventID(id, 7)); err != nil || got != id || version != 7 {
		t.Errorf("%s %d %v", got, version, err)
	}
	for _, bad := range []string{"", ".", id.String(), id.String() + ".", id.String() + ".0", id.String() + ".-1", id.String() + ".x", "urn:uuid:" + id.String() + ".1", "{" + id.String() + "}.1"} {
		if _, _, err := delivery.ParseEventID(bad); err == nil {
			t.Errorf("%q is taken for an event id", bad)
		}
	}
}

func TestIDsCarryTheirTimeInOrder(t *testing.T) {
	t.Parallel()
	before := time.Now().Truncate(time.Millisecond)
	last := delivery.NewID()
	for range 1000 {
		next := delivery.NewID()
		if next.String() <= last.String() {
			t.Fatalf("%s after %s", next, last)
		}
		last = next
	}
	if at := last.Time(); at.Before(before) || at.After(time.Now()) {
		t.Errorf("%s carries %s", last, at)
	}
}

func TestValidTrace(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": true, "": false, "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01": false,
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n": false, "x": false,
	} {
		if delivery.ValidTrace(s) != want {
			t.Errorf("%q: %v", s, !want)
		}
	}
}

// Only what ends a delivery is final, and from the end only a person or a late
// word leads back.
func TestTheTableOfMoves(t *testing.T) {
	t.Parallel()
	reached := map[delivery.State]bool{"": true}
	seen := map[delivery.Move]bool{}
	for _, m := range delivery.Moves() {
		if seen[m] {
			t.Errorf("%+v is listed twice", m)
		}
		seen[m] = true
		reached[m.To] = true
		if m.From.Final() && m.Cause != "operator" && m.Cause != "late result" && m.Cause != "bounce" {
			t.Errorf("%+v leaves a final state", m)
		}
		if !delivery.Legal(m.From, m.To) {
			t.Errorf("%+v is not legal", m)
		}
	}
	for _, s := range delivery.States() {
		if !reached[s] {
			t.Errorf("nothing leads to %s", s)
		}
		if delivery.Legal(s, delivery.Pending) {
			t.Errorf("%s becomes pending", s)
		}
	}
}
