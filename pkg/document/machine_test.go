package document_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// machine lives the life of one document under random answers, crashes, commands
// and clock steps, as the services would: it keeps the row, the queue row and the
// deadline row, and takes each step only when they allow it.
type machine struct {
	policy  document.Policy
	facts   document.Facts
	now     time.Time
	due     time.Time // queue row; zero: not in the queue
	mlsDue  time.Time // deadline row
	version int
	tries   int
	sent    []document.MLSRequest
	revived bool // by an operator
}

func start(t *rapid.T) *machine {
	p := document.DefaultPolicy()
	p.Verification = rapid.Bool().Draw(t, "verification")
	p.FailMode = rapid.SampledFrom([]document.FailMode{document.Closed, document.Open, document.DeferredMode}).Draw(t, "fail mode")
	p.Rejected = rapid.SampledFrom([]document.RejectedForwarding{document.ForwardNone, document.ForwardBestEffort, document.ForwardRetry}).Draw(t, "rejection forwarding")
	p.Trigger = rapid.SampledFrom([]document.Trigger{document.TriggerAuto, document.TriggerAPI}).Draw(t, "trigger")
	p.APICode = rapid.SampledFrom([]document.Code{document.AP, document.AB, document.RE}).Draw(t, "api code")
	p.RefusedCode = rapid.SampledFrom([]document.Code{document.AB, document.RE}).Draw(t, "refused code")
	p.MLS = rapid.IntRange(0, 9).Draw(t, "mls") > 0
	m := &machine{policy: p, now: noon, facts: the("",
		kind(rapid.SampledFrom([]document.Kind{document.Business, document.Business, document.Business, document.KindMLS, document.KindMLR}).Draw(t, "kind")),
		func(f *document.Facts) {
			f.MLSType = rapid.SampledFrom([]document.MLSType{document.AlwaysSend, document.FailureOnly}).Draw(t, "type")
			f.AS4At = noon.Add(time.Duration(rapid.IntRange(-600, 600).Draw(t, "stamp")) * time.Second)
			f.Reference = rapid.SampledFrom([]string{"", "sbdh-0"}).Draw(t, "reference")
		})}
	m.write(t, must1(t)(m.facts.Receive(&p, m.now)))
	return m
}

func must1(t *rapid.T) orFatal {
	return func(d document.Decision, err error) document.Decision {
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
}

// write is the transaction, and checks what must hold at each.
func (m *machine) write(t *rapid.T, d document.Decision) {
	before := m.facts
	if d.From != before.State {
		t.Fatalf("from %s, the row is %s", d.From, before.State)
	}
	switch {
	case d.Quiet:
		if d.To != d.From || d.MLS != before.MLS || d.Send != nil || d.Letter != "" || d.Counts || d.Verdict != before.Verdict {
			t.Fatalf("a quiet decision changes something: %+v", d)
		}
	case d.Note:
		if d.To != d.From || d.Verdict != before.Verdict {
			t.Fatalf("a note moves: %+v", d)
		}
	case !document.Legal(d.From, d.To, d.Cause):
		t.Fatalf("%s -> %s (%s) is not in the table", d.From, d.To, d.Cause)
	case before.State.Final() && d.By != document.Operator && (before.State != document.Rejected || m.due.IsZero()):
		t.Fatalf("%s leaves %s by itself", d.By, d.From)
	}
	if !d.Quiet {
		m.version++
		e, err := document.NewEvent(before, d, m.version, m.now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.Encode(); err != nil {
			t.Fatal(err)
		}
	}
	m.facts = before.After(d)
	if !d.Note {
		m.due = d.Due
	}
	m.mlsDue = d.MLSDue
	switch {
	case d.Renew:
		m.tries, m.revived = 0, true
	case d.Counts:
		m.tries++
	}
	if d.Send != nil {
		m.sent = append(m.sent, *d.Send)
	}
	m.invariants(t, before)
}

func (m *machine) invariants(t *rapid.T, before document.Facts) {
	f := m.facts
	if before.MLS.Code != "" && f.MLS.Code != before.MLS.Code {
		t.Fatalf("the code %s became %s", before.MLS.Code, f.MLS.Code)
	}
	if len(m.sent) > 1 {
		t.Fatalf("two MLS: %+v", m.sent)
	}
	if len(m.sent) == 1 {
		r := m.sent[0]
		switch {
		case f.Kind != document.Business:
			t.Fatal("an MLS was answered")
		case !m.policy.MLS:
			t.Fatal("sent although it is off")
		case r.Code != f.MLS.Code:
			t.Fatalf("sent %s, the row says %s", r.Code, f.MLS.Code)
		case r.Code != document.RE && f.MLSType == document.FailureOnly:
			t.Fatal("a positive MLS to one who wants failures only")
		case (r.Code == document.RE) != fatal(r.Issues):
			t.Fatalf("%s with %+v", r.Code, r.Issues)
		}
	}
	// Nothing is stuck: what is not final is due, and what waits for the backend has
	// its deadline.
	if !f.State.Final() && m.due.IsZero() {
		t.Fatalf("%s is in no queue", f.State)
	}
	if f.MLS.Status == document.MLSWaiting && f.State == document.Forwarded && f.Verdict != document.VerdictRejected && m.mlsDue.IsZero() {
		t.Fatal("the deadline row is missing")
	}
	if due, applies := f.MLSDeadline(&m.policy); applies != !m.mlsDue.IsZero() || applies && !due.Equal(m.mlsDue) {
		t.Fatalf("deadline %s, row %s", due, m.mlsDue)
	}
	if limit := f.ReceivedAt.Add(m.policy.RetryFor); f.State == document.Deferred && m.due.After(limit) && m.due.After(m.now.Add(time.Hour)) {
		t.Fatalf("deferred until %s", m.due)
	}
	if f.State == document.Forwarded && f.Missing() && m.policy.MLS && m.mlsDue.IsZero() {
		t.Fatal("an answer is owed and nothing will give it")
	}
}

func fatal(lines []document.MLSIssue) bool {
	for _, l := range lines {
		if l.Reason != document.BW {
			return true
		}
	}
	return false
}

// next is a schedule of three attempts.
func (m *machine) next() time.Time {
	if m.tries >= 2 {
		return time.Time{}
	}
	return m.now.Add(time.Minute)
}

func (m *machine) claimed() bool { return !m.due.IsZero() && !m.due.After(m.now) }

func TestTheLifeOfADocument(t *testing.T) {
	t.Parallel()
	for range 15 { // one round of the library is a hundred lives, and many of them are dull
		rapid.Check(t, live)
	}
}

func live(t *rapid.T) {
	m := start(t)
	p := &m.policy
	work := func(t *rapid.T) {
		if !m.claimed() {
			t.Skip("nothing is due")
		}
		switch {
		case m.facts.State == document.Deferred && !p.Verification:
			m.write(t, must1(t)(m.facts.VerificationOff(p, m.now)))
		case m.facts.NeedsVerification(p):
			r := rapid.SampledFrom([][]document.Result{passes, passes, says, away, {{Ours: true}}, {{Ours: true, Interrupted: true}}, nil}).Draw(t, "results")
			m.write(t, must1(t)(m.facts.Verified(r, p, m.now)))
		case m.facts.Forwardable(p):
			m.write(t, must1(t)(m.facts.Attempted(document.Attempt{
				Verdict:   rapid.SampledFrom([]delivery.Verdict{delivery.Accepted, delivery.Accepted, delivery.Refused, delivery.Unknown, delivery.Interrupted}).Draw(t, "verdict"),
				Answer:    delivery.Answer{Category: rapid.SampledFrom([]delivery.Category{delivery.Transient, delivery.Permanent, delivery.Quota}).Draw(t, "category")},
				Confirmed: rapid.Bool().Draw(t, "confirmed"), NoRetry: rapid.Bool().Draw(t, "no retry"), Next: m.next(),
			}, p, m.now)))
		default:
			d, ok := m.facts.Leave(p)
			if !ok {
				t.Fatalf("%s is due and there is nothing to do", m.facts.State)
			}
			m.write(t, d)
		}
	}
	t.Repeat(map[string]func(*rapid.T){
		"clock": func(t *rapid.T) {
			m.now = m.now.Add(time.Duration(rapid.SampledFrom([]int{1, 30, 60, 300, 3600, 43200}).Draw(t, "seconds")) * time.Second)
		},
		"work": work, "work on": work, "work again": work,
		"breaker": func(t *rapid.T) {
			if !m.claimed() {
				t.Skip("nothing is due")
			}
			if d, ok := m.facts.Postponed(m.now.Add(time.Minute), p, m.now); ok {
				m.write(t, d)
			}
		},
		"crash": func(t *rapid.T) {
			if !m.claimed() || m.facts.State == document.Rejected && !m.facts.Forwardable(p) {
				t.Skip("nothing is leased")
			}
			m.write(t, must1(t)(m.facts.LeaseExpired(m.next(), p, m.now)))
		},
		"watchdog": func(t *rapid.T) {
			if d, ok := m.facts.Overdue(p, m.now); ok {
				if m.now.Before(m.facts.Origin().Add(p.APITimeout)) {
					t.Fatal("answered before the deadline")
				}
				m.write(t, d)
			} else if !m.mlsDue.IsZero() && !m.now.Before(m.mlsDue) {
				t.Fatal("the deadline has passed and the watchdog does nothing")
			}
		},
		"backend": func(t *rapid.T) {
			r := rapid.SampledFrom([]document.Report{{Code: "AP"}, {Code: "AB"}, {Code: "RE", Issues: []document.MLSIssue{{Reason: "FD", Field: "NA", Text: "x"}}}}).Draw(t, "report")
			if d, _, err := m.facts.Report(r, p); err == nil {
				m.write(t, d)
			}
		},
		"mls delivery ends": func(t *rapid.T) {
			if d, err := m.facts.MLSOutcome(rapid.Bool().Draw(t, "sent"), p); err == nil {
				if len(m.sent) != 1 {
					t.Fatal("the outcome of nothing")
				}
				m.write(t, d)
			}
		},
		"replay": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "rarely") == 0 {
				m.write(t, must1(t)(m.facts.Replay(p, m.now)))
			}
		},
		"reverify": func(t *rapid.T) {
			if rapid.IntRange(0, 5).Draw(t, "rarely") > 0 {
				return
			}
			if d, err := m.facts.Reverify(p, m.now); err == nil {
				m.write(t, d)
			}
		},
		"settings": func(t *rapid.T) {
			p.Verification = rapid.Bool().Draw(t, "verification")
			p.Rejected = rapid.SampledFrom([]document.RejectedForwarding{document.ForwardNone, document.ForwardBestEffort, document.ForwardRetry}).Draw(t, "rejection forwarding")
		},
	})
	m.finish(t)
}

// finish lets time pass with a backend and verifiers that answer nothing: every
// document ends all the same, and C2 is told what it must be.
func (m *machine) finish(t *rapid.T) {
	p := &m.policy
	for range 1000 {
		switch f := m.facts; {
		case !m.mlsDue.IsZero() && (m.due.IsZero() || m.mlsDue.Before(m.due)):
			m.now = later(m.now, m.mlsDue)
			d, ok := f.Overdue(p, m.now)
			if !ok {
				t.Fatal("the watchdog does nothing at the deadline")
			}
			m.write(t, d)
		case m.due.IsZero():
			if !f.State.Final() {
				t.Fatalf("ended as %s", f.State)
			}
			if p.MLS && f.Kind == document.Business && f.MLS.Status == document.MLSNone && !m.revived {
				t.Fatalf("%s and C2 was told nothing", f.State)
			}
			return
		default:
			m.now = later(m.now, m.due)
			switch {
			case f.State == document.Deferred && !p.Verification:
				m.write(t, must1(t)(f.VerificationOff(p, m.now)))
			case f.NeedsVerification(p):
				m.write(t, must1(t)(f.Verified(away, p, m.now)))
			case f.Forwardable(p):
				m.write(t, must1(t)(f.Attempted(failed(m.next()), p, m.now)))
			default:
				d, ok := f.Leave(p)
				if !ok {
					t.Fatalf("%s is stuck", f.State)
				}
				m.write(t, d)
			}
		}
	}
	t.Fatalf("%s does not end", m.facts.State)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
