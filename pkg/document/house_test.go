package document_test

import (
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// noon is when the documents of these tests are received; their AS4 time stamp is
// two seconds earlier.
var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// the is a business document in a state, changed by the given steps.
func the(s document.State, change ...func(*document.Facts)) document.Facts {
	f := document.Facts{
		ID: delivery.ID{1: 7}, Tenant: "acme", State: s, Kind: document.Business, SBDHInstanceID: "sbdh-1", MLSType: document.AlwaysSend,
		C2SeatID: "POP000306", ReceivedAt: noon, AS4At: noon.Add(-2 * time.Second),
	}
	for _, c := range change {
		c(&f)
	}
	return f
}

func verdict(v document.Verdict) func(*document.Facts) {
	return func(f *document.Facts) { f.Verdict = v }
}
func kind(k document.Kind) func(*document.Facts) { return func(f *document.Facts) { f.Kind = k } }
func code(c document.Code) func(*document.Facts) {
	return func(f *document.Facts) { f.MLS = document.MLS{Status: document.MLSClaimed, Code: c} }
}
func failureOnly(f *document.Facts) { f.MLSType = document.FailureOnly }

// with is the seed's policy with verification on, changed.
func with(change ...func(*document.Policy)) *document.Policy {
	p := document.DefaultPolicy()
	p.Verification = true
	for _, c := range change {
		c(&p)
	}
	return &p
}

func mode(m document.FailMode) func(*document.Policy) {
	return func(p *document.Policy) { p.FailMode = m }
}
func api(p *document.Policy)    { p.Trigger = document.TriggerAPI }
func mlsOff(p *document.Policy) { p.MLS = false }
func rejected(r document.RejectedForwarding) func(*document.Policy) {
	return func(p *document.Policy) { p.Rejected = r }
}

var (
	passes = []document.Result{{Verifier: "a", Verdict: document.VerdictPassed}}
	says   = []document.Result{{Verifier: "a", Verdict: document.VerdictRejected, Issues: []document.Issue{{Code: "BR-1", Severity: document.BV, Text: "no total", Location: "/Invoice"}}}}
	away   = []document.Result{{Verifier: "a", Verdict: document.VerdictUnavailable, Code: "HTTP_503", Server: true}}
)

func taken(confirmed bool) document.Attempt {
	return document.Attempt{Verdict: delivery.Accepted, Confirmed: confirmed}
}

func failed(next time.Time) document.Attempt {
	return document.Attempt{Verdict: delivery.Refused, Answer: delivery.Answer{Category: delivery.Transient, Code: "HTTP_503"}, Next: next}
}

// A decision that must be there: of a step that may be refused, and of one that
// may have nothing to do.
type (
	orFatal func(document.Decision, error) document.Decision
	orNone  func(document.Decision, bool) document.Decision
)

func must(t *testing.T) orFatal {
	t.Helper()
	return func(d document.Decision, err error) document.Decision {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

func yes(t *testing.T) orNone {
	t.Helper()
	return func(d document.Decision, ok bool) document.Decision {
		t.Helper()
		if !ok {
			t.Fatal("there is no decision")
		}
		return d
	}
}

// want is what a test says of a decision; empty fields are not compared, except
// the due time and the MLS.
type want struct {
	to       document.State
	cause    document.Cause
	quiet    bool
	due      time.Time
	counts   bool
	verdict  document.Verdict
	status   document.MLSStatus
	code     document.Code
	sends    bool
	deadline time.Time
	letter   document.Letter
}

func check(t *testing.T, d document.Decision, w want) {
	t.Helper()
	got := want{d.To, d.Cause, d.Quiet, d.Due, d.Counts, d.Verdict, d.MLS.Status, d.MLS.Code, d.Send != nil, d.MLSDue, d.Letter}
	if got != w {
		t.Errorf("\n got %+v\nwant %+v", got, w)
	}
	if !d.Quiet && !d.Note && !document.Legal(d.From, d.To, d.Cause) {
		t.Errorf("%s -> %s (%s) is not in the table", d.From, d.To, d.Cause)
	}
}
