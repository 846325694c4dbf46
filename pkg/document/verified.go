package document

import (
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// NeedsVerification tells whether the verifiers are to be asked before anything
// else. What is being retried has been let through before; what was deferred is
// asked about by the verifier-retry service.
func (f Facts) NeedsVerification(p *Policy) bool {
	return (f.State == Received || f.State == Deferred) && f.Verdict == VerdictNone && p.Verification
}

// Receive is the first decision about a document that was stored. f.State must
// be empty.
func (f Facts) Receive(p *Policy, now time.Time) (Decision, error) {
	if f.State != "" {
		return Decision{}, f.refuse("receive")
	}
	d := f.keep(Received, CauseReceived, Gateway)
	d.Due = now
	if f.Kind != Business {
		d.MLS = MLS{Status: MLSNotApplicable}
	}
	if f.Kind == KindMLS && f.Reference == "" {
		// It answers nothing that we could look up, and must not be answered itself.
		d.To, d.Cause, d.Due, d.Letter = Dead, CauseNoReference, time.Time{}, LetterRejected
	}
	return f.end(d, p), nil
}

// Verified is what follows from the answers of the verifiers: by the forwarder
// for a received document, by verifier-retry for a deferred one.
func (f Facts) Verified(results []Result, p *Policy, now time.Time) (Decision, error) {
	if f.State != Received && f.State != Deferred || f.Verdict != VerdictNone {
		return Decision{}, f.refuse("verified")
	}
	by := Forwarder
	if f.State == Deferred {
		by = VerifierRetry
	}
	c := Combine(results)
	limit := f.ReceivedAt.Add(p.RetryFor)
	switch c.Verdict {
	case VerdictPassed:
		d := f.keep(Received, CauseVerified, by)
		d.Verdict, d.Issues, d.Due = VerdictPassed, c.Issues, now
		return f.end(d, p), nil
	case VerdictRejected:
		return f.reject(CauseVerification, by, c.Issues, p, now), nil
	case VerdictNone:
		// Nothing was learned, so nothing is decided: neither our stop nor a fault of our
		// own store may reject a document. The wait has the same bound as that for a
		// verifier; after it, what nobody could look at is treated as an outage.
		if c.Interrupted {
			return f.quiet(CauseInterrupted, by, now, p), nil
		}
		if now.Before(limit) {
			return f.quiet(CausePayload, by, earlier(now.Add(p.RetryEvery), limit), p), nil
		}
	}
	return f.unavailable(c, by, limit, p, now), nil
}

// unavailable applies the fail mode.
func (f Facts) unavailable(c Combined, by Who, limit time.Time, p *Policy, now time.Time) Decision {
	away := Issue{Severity: BV, Text: "the verification service did not answer"}
	switch {
	case p.FailMode == Open:
		d := f.keep(Received, CauseUnverified, by)
		d.Verdict, d.Issues, d.Due = VerdictUnverified, c.Issues, now
		return f.end(d, p)
	case p.FailMode == DeferredMode && now.Before(limit):
		due := earlier(now.Add(p.RetryEvery), limit)
		if f.State == Deferred {
			return f.quiet(CauseUnavailable, by, due, p) // told once: the outage is the verifier's, not the document's
		}
		d := f.keep(Deferred, CauseUnavailable, by)
		d.Due = due
		return f.end(d, p)
	case p.FailMode == DeferredMode && f.State == Deferred:
		return f.reject(CauseDeadline, by, append([]Issue{away}, c.Issues...), p, now)
	}
	return f.reject(CauseUnavailable, by, append([]Issue{away}, c.Issues...), p, now)
}

// reject ends the document with a negative MLS; with Policy.Rejected the backend
// still gets it.
func (f Facts) reject(cause Cause, by Who, issues []Issue, p *Policy, now time.Time) Decision {
	d := f.keep(Rejected, cause, by)
	d.Verdict, d.Issues, d.Letter = VerdictRejected, worst(issues), LetterRejected
	if p.Rejected == ForwardBestEffort || p.Rejected == ForwardRetry {
		d.Due = now
	}
	after := f.After(d)
	d.MLS, d.Send = after.answer(situation{is: verificationRejected}, p)
	return f.end(d, p)
}

// VerificationOff sends a deferred document on its way when verification has been
// turned off meanwhile.
func (f Facts) VerificationOff(p *Policy, now time.Time) (Decision, error) {
	if f.State != Deferred || p.Verification {
		return Decision{}, f.refuse("verification off")
	}
	d := f.keep(Received, CauseOff, VerifierRetry)
	d.Due = now
	return f.end(d, p), nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Summary says in one line what the verifiers found, for an event or a list.
func Summary(issues []Issue) string {
	var parts []string
	for _, i := range issues {
		if i.Fatal() {
			parts = append(parts, strings.TrimSpace(i.Code+" "+i.Text))
		}
	}
	return delivery.Bound(strings.Join(parts, "; "))
}
