package document_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
)

func TestCombine(t *testing.T) {
	t.Parallel()
	const (
		P = document.VerdictPassed
		X = document.VerdictRejected
		U = document.VerdictUnavailable
		N = document.VerdictNone
	)
	r := func(v document.Verdict) document.Result { return document.Result{Verifier: "v", Verdict: v} }
	ours := document.Result{Verifier: "v", Ours: true}
	for name, c := range map[string]struct {
		results []document.Result
		want    document.Verdict
	}{
		"nobody was asked":      {nil, U},
		"one passes":            {[]document.Result{r(P)}, P},
		"all pass":              {[]document.Result{r(P), r(P)}, P},
		"one is away":           {[]document.Result{r(P), r(U)}, U},
		"rejection over outage": {[]document.Result{r(U), r(X), r(P)}, X},
		"zero is unknown":       {[]document.Result{r(P), r("")}, U},
		"a word of another day": {[]document.Result{r("ok")}, U},
		"unverified is no pass": {[]document.Result{r(document.VerdictUnverified)}, U},
		"ours":                  {[]document.Result{r(P), ours}, N},
		"ours over outage":      {[]document.Result{r(U), ours}, N},
		"rejection over ours":   {[]document.Result{ours, r(X)}, X},
		"ours is never a pass":  {[]document.Result{{Verifier: "v", Verdict: P, Ours: true}}, N},
	} {
		if got := document.Combine(c.results); got.Verdict != c.want {
			t.Errorf("%s: %q, want %q", name, got.Verdict, c.want)
		}
	}
	c := document.Combine([]document.Result{{Verifier: "z"}, {Verifier: "a"}})
	if !slices.Equal(c.Away, []string{"a", "z"}) {
		t.Errorf("away %v", c.Away)
	}
}

// The order of the answers does not matter, and what is kept is bounded, storable
// and the worst of it.
func TestCombineHoldsForAnyAnswers(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		issue := rapid.Custom(func(t *rapid.T) document.Issue {
			return document.Issue{Code: rapid.String().Draw(t, "code"), Severity: rapid.SampledFrom([]document.Severity{"SV", "BV", "BW", "?"}).Draw(t, "severity"),
				Text: strings.Repeat(rapid.String().Draw(t, "text"), 50), Location: strings.Repeat(rapid.String().Draw(t, "location"), 50)}
		})
		results := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) document.Result {
			return document.Result{Verifier: rapid.StringMatching("[a-c]").Draw(t, "name"), Verdict: rapid.SampledFrom([]document.Verdict{"passed", "rejected", "unavailable", ""}).Draw(t, "verdict"),
				Issues: rapid.SliceOfN(issue, 0, 60).Draw(t, "issues")}
		}), 0, 5).Draw(t, "results")
		a := document.Combine(results)
		b := document.Combine(rapid.Permutation(results).Draw(t, "order"))
		if a.Verdict != b.Verdict || !slices.Equal(a.Away, b.Away) || len(a.Issues) != len(b.Issues) {
			t.Fatalf("%+v\n%+v", a, b)
		}
		if len(a.Issues) > document.MaxIssues {
			t.Fatalf("%d issues", len(a.Issues))
		}
		for i, x := range a.Issues {
			if i > 0 && !a.Issues[i-1].Fatal() && x.Fatal() {
				t.Fatal("a warning stands before an error")
			}
			if x != x.Bounded() || len(x.Text) > delivery.MaxText || len(x.Code) > document.MaxCode || strings.ContainsAny(x.Location, "\x00\n") {
				t.Fatalf("%+v", x)
			}
		}
	})
}
