package document

import (
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Attempt is what one attempt to forward came to. Next is when the schedule
// (package retry) would try again; zero means that the attempts are used up.
type Attempt struct {
	Verdict   delivery.Verdict
	Answer    delivery.Answer
	Confirmed bool   // the backend itself took it, rather than a place where it will look
	NoRetry   bool   // the backend forbids another attempt
	C4Country string // told with the answer, or empty
	Next      time.Time
}

// refused tells that no other attempt will help. Of an attempt with an unknown
// outcome nothing is known, so it is never final by itself.
func (a Attempt) refused() bool {
	return a.Verdict == delivery.Refused && (a.NoRetry || !a.Answer.Category.Retryable())
}

// Forwardable tells whether the document may be handed to the forwarder now.
func (f Facts) Forwardable(p *Policy) bool {
	switch f.State {
	case Received:
		return !f.NeedsVerification(p)
	case Retry:
		return true
	case Rejected:
		return p.Rejected == ForwardBestEffort || p.Rejected == ForwardRetry
	}
	return false
}

// Attempted is what follows from an attempt.
func (f Facts) Attempted(a Attempt, p *Policy, now time.Time) (Decision, error) {
	if !f.Forwardable(p) {
		return Decision{}, f.refuse("attempted")
	}
	if a.Verdict == delivery.Interrupted {
		return f.quiet(CauseInterrupted, Forwarder, now, p), nil
	}
	d := f.keep(Retry, CauseAttempt, Forwarder)
	d.Counts = true
	switch {
	case a.Verdict == delivery.Accepted:
		d.To, d.Counts = Forwarded, false
		if f.C4Country == "" && country(a.C4Country) {
			d.C4Country = a.C4Country
		}
		after := f.After(d)
		d.MLS, d.Send = after.answer(situation{is: forwarded, confirmed: a.Confirmed}, p)
	case f.State == Rejected && p.Rejected == ForwardBestEffort:
		d.To = Rejected // it was for information only
	case a.refused():
		d.To, d.Cause, d.Letter = Dead, CauseRefused, LetterExhausted
		after := f.After(d)
		d.MLS, d.Send = after.answer(situation{is: forwardingRefused}, p)
	case a.Next.IsZero():
		d.To, d.Cause, d.Letter = Dead, CauseExhausted, LetterExhausted
		after := f.After(d)
		d.MLS, d.Send = after.answer(situation{is: forwardingExhausted}, p)
	default:
		d.Due = a.Next
		if d.Due.Before(now) {
			d.Due = now
		}
	}
	return f.end(d, p), nil
}

// NoForwarder ends a document for which nothing is configured. C2 is told, since
// it will not get better by itself.
func (f Facts) NoForwarder(p *Policy) (Decision, error) {
	if f.State != Received && f.State != Retry {
		return Decision{}, f.refuse("no forwarder")
	}
	d := f.keep(Dead, CauseNoForwarder, Forwarder)
	d.Letter = LetterExhausted
	after := f.After(d)
	d.MLS, d.Send = after.answer(situation{is: forwardingExhausted}, p)
	return f.end(d, p), nil
}

// Postponed is a document that met an open breaker or a full lane: it waits until
// then, costs no attempt and tells nobody. It is false when the document is too
// old for that (Policy.PostponeFor); such a meeting counts as a failed attempt.
func (f Facts) Postponed(until time.Time, p *Policy, now time.Time) (Decision, bool) {
	if f.age(now) >= p.PostponeFor || !f.Forwardable(p) && !f.NeedsVerification(p) {
		return Decision{}, false
	}
	by := Forwarder
	if f.State == Deferred {
		by = VerifierRetry
	}
	if until.Before(now) {
		until = now
	}
	return f.quiet(CausePostponed, by, until, p), true
}

// LeaseExpired gives a document back whose worker is gone. While it was being
// verified, or forwarded for information, nothing is known to have happened; a
// document that kills its verification again and again meets the bound of waiting
// for a verifier (Policy.RetryFor). An attempt to forward may have reached the backend: it is recorded with an unknown
// outcome and repeated under the same key. A crash costs no attempt while the
// document is young (Policy.PostponeFor), so that restarts do not eat the budget,
// and does afterwards, so that a document that kills its workers comes to an end:
// then next, the schedule's time, decides as after an attempt.
func (f Facts) LeaseExpired(next time.Time, p *Policy, now time.Time) (Decision, error) {
	young := f.age(now) < p.PostponeFor
	switch {
	case f.State == Deferred, f.NeedsVerification(p):
		if limit := f.ReceivedAt.Add(p.RetryFor); !now.Before(limit) {
			by := Forwarder
			if f.State == Deferred {
				by = VerifierRetry
			}
			return f.unavailable(Combined{}, by, limit, p, now), nil
		}
		return f.quiet(CauseLeaseExpired, Watchdog, now, p), nil
	case !f.Forwardable(p):
		return Decision{}, f.refuse("lease expired")
	case !young:
		return f.Attempted(Attempt{Verdict: delivery.Unknown, Next: next}, p, now)
	case f.State == Rejected:
		return f.quiet(CauseLeaseExpired, Watchdog, now, p), nil
	}
	d := f.keep(Retry, CauseLeaseExpired, Watchdog)
	d.Due = now
	return f.end(d, p), nil
}

// Leave takes a document out of the queue that nobody is to work on any more: a
// rejected one, after its forwarding for information was turned off. It is false
// for every other.
func (f Facts) Leave(p *Policy) (Decision, bool) {
	if !f.State.Final() || f.Forwardable(p) {
		return Decision{}, false
	}
	return f.quiet(CauseOff, Forwarder, time.Time{}, p), true
}

// age runs from reception.
func (f Facts) age(now time.Time) time.Duration { return now.Sub(f.ReceivedAt) }
