package document

import (
	"fmt"
	"time"
)

// Replay forwards a document again, whatever became of it, with a new budget and
// by the same way as any other. A document that nobody has verified goes out as
// unverified: the operator has decided. What C2 was told stays told.
func (f Facts) Replay(p *Policy, now time.Time) (Decision, error) {
	if f.State == "" {
		return Decision{}, f.refuse("replay")
	}
	d := f.keep(Retry, CauseReplay, Operator)
	d.Due, d.Renew = now, true
	if f.Verdict == VerdictNone && p.Verification {
		d.Verdict = VerdictUnverified
	}
	return f.end(d, p), nil
}

// Reverify asks the verifiers again and, if they pass it, forwards the document.
// One that was forwarded, or is on its first way, has nothing to gain from it.
func (f Facts) Reverify(p *Policy, now time.Time) (Decision, error) {
	switch f.State {
	case Deferred, Retry, Rejected, Dead:
	default:
		return Decision{}, f.refuse("reverify")
	}
	d := f.keep(Received, CauseReverify, Operator)
	d.Due, d.Renew = now, true
	d.Verdict, d.Issues = VerdictNone, nil
	return f.end(d, p), nil
}

// ReportC4 notes the receiver's country that the backend told late: two capital
// letters, once.
func (f Facts) ReportC4(code string, p *Policy) (Decision, error) {
	switch {
	case f.State == "":
		return Decision{}, f.refuse("c4 country")
	case !country(code):
		return Decision{}, fmt.Errorf("country is %.16q, want two capital letters of ISO 3166-1", code)
	case f.C4Country != "":
		return Decision{}, fmt.Errorf("document %s: the country of C4 is known already (%s): %w", f.ID, f.C4Country, ErrState)
	}
	d := f.keep(f.State, CauseC4Country, Backend)
	d.Note, d.C4Country = true, code
	return f.end(d, p), nil
}

func country(s string) bool {
	return len(s) == 2 && s[0] >= 'A' && s[0] <= 'Z' && s[1] >= 'A' && s[1] <= 'Z'
}
