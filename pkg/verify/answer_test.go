package verify_test

import (
	"strings"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/verify"
)

func TestParseAnswer(t *testing.T) {
	t.Parallel()
	a, err := verify.ParseAnswer([]byte(` {"verdict":"rejected","took_ms":5,"issues":[{"code":"X\u0000","severity":"SV","text":"` + strings.Repeat("ü", 1000) + `","location":"/a","line":3}]} `))
	if err != nil || a.Verdict != document.VerdictRejected || len(a.Issues) != 1 || a.Issues[0].Code != "X" || len(a.Issues[0].Text) > delivery.MaxText {
		t.Errorf("%+v %v", a, err)
	}
	for _, bad := range []string{
		"", "null", "[]", `"passed"`, "{}", `{"verdict":""}`, `{"verdict":"Passed"}`, `{"verdict":"unverified"}`, `{"verdict":1}`, `{"verdict":"passed"} x`, `{"verdict":"passed"}{"verdict":"rejected"}`,
		`{"verdict":"passed","issues":{}}`, `{"verdict":"passed","issues":[{"severity":"BV"}]}`, `{"verdict":"rejected","issues":[{"severity":"FD"}]}`, `{"verdict":"rejected","issues":[{}]}`,
		`{"verdict":"passed"`, strings.Repeat("[", 100_000),
	} {
		if a, err := verify.ParseAnswer([]byte(bad)); err == nil {
			t.Errorf("%.60q: %+v", bad, a)
		}
	}
}

func FuzzParseAnswer(f *testing.F) {
	f.Add([]byte(`{"verdict":"passed"}`))
	f.Add([]byte(`{"verdict":"rejected","issues":[{"code":"\ud800","severity":"BV","text":"a\u0000b","location":"/x"}]}`))
	f.Add([]byte(`{"verdict":"unavailable","issues":null}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := verify.ParseAnswer(b)
		if err != nil {
			if len(err.Error()) > 200 || a.Verdict != document.VerdictNone {
				t.Errorf("%+v %v", a, err)
			}
			return
		}
		for _, i := range a.Issues {
			if i != i.Bounded() || i.Fatal() && a.Verdict == document.VerdictPassed {
				t.Errorf("%+v", a)
			}
		}
	})
}
