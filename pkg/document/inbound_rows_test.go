package document_test

import (
	"errors"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// The rows of the seed's table of inbound states, each under its own name. What
// the field gets wrong there is right here.
func TestRowsOfTheInboundTable(t *testing.T) {
	t.Parallel()
	const (
		R = document.Received
		D = document.Deferred
		Y = document.Retry
		F = document.Forwarded
		X = document.Rejected
		E = document.Dead
	)
	at := noon.Add(time.Minute)
	next := at.Add(2 * time.Minute)
	deadline := noon.Add(-2*time.Second + 5*time.Minute)
	late := noon.Add(12 * time.Hour)
	deferring := mode(document.DeferredMode)
	p := document.VerdictPassed

	for name, c := range map[string]struct {
		do   func(orFatal, orNone) document.Decision
		want want
	}{
		"new to received: stored": {func(m orFatal, _ orNone) document.Decision {
			return m(the("").Receive(with(), noon))
		}, want{to: R, cause: "received", due: noon}},
		"received to rejected: a verifier says no": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R).Verified(says, with(), at))
		}, want{to: X, cause: "verification", verdict: "rejected", status: "claimed", code: "RE", sends: true, letter: "rejected"}},
		"received to rejected: the verifier is away, fail mode closed": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R).Verified(away, with(), at))
		}, want{to: X, cause: "verifier unavailable", verdict: "rejected", status: "claimed", code: "RE", sends: true, letter: "rejected"}},
		"received stays: the verifier is away, fail mode open": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R).Verified(away, with(mode(document.Open)), at))
		}, want{to: R, cause: "unverified", due: at, verdict: "unverified"}},
		"received to deferred: the verifier is away, fail mode deferred": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R).Verified(away, with(deferring), at))
		}, want{to: D, cause: "verifier unavailable", due: at.Add(5 * time.Minute)}},
		"received to deferred: the deadline is nearer than the interval": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R).Verified(away, with(deferring), late.Add(-time.Minute)))
		}, want{to: D, cause: "verifier unavailable", due: late}},
		"deferred: passed, goes on to be forwarded": {func(m orFatal, _ orNone) document.Decision {
			return m(the(D).Verified(passes, with(deferring), at))
		}, want{to: R, cause: "verified", due: at, verdict: p}},
		"deferred: passed after the deadline all the same": {func(m orFatal, _ orNone) document.Decision {
			return m(the(D).Verified(passes, with(deferring), late.Add(time.Hour)))
		}, want{to: R, cause: "verified", due: late.Add(time.Hour), verdict: p}},
		"deferred: verification was turned off meanwhile": {func(m orFatal, _ orNone) document.Decision {
			return m(the(D).VerificationOff(with(func(p *document.Policy) { p.Verification = false }), at))
		}, want{to: R, cause: "verification off", due: at}},
		"deferred: still away, deferred again without a word": {func(m orFatal, _ orNone) document.Decision {
			return m(the(D).Verified(away, with(deferring), at))
		}, want{to: D, cause: "verifier unavailable", quiet: true, due: at.Add(5 * time.Minute)}},
		"deferred to rejected: past the deadline": {func(m orFatal, _ orNone) document.Decision {
			return m(the(D).Verified(away, with(deferring), late))
		}, want{to: X, cause: "deadline", verdict: "rejected", status: "claimed", code: "RE", sends: true, letter: "rejected"}},
		"deferred to rejected: a verifier says no": {func(m orFatal, _ orNone) document.Decision {
			return m(the(D).Verified(says, with(deferring), at))
		}, want{to: X, cause: "verification", verdict: "rejected", status: "claimed", code: "RE", sends: true, letter: "rejected"}},
		"rejected is due for the backend: best-effort": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R).Verified(says, with(rejected(document.ForwardBestEffort)), at))
		}, want{to: X, cause: "verification", due: at, verdict: "rejected", status: "claimed", code: "RE", sends: true, letter: "rejected"}},
		"rejected to forwarded: best-effort, one MLS": {func(m orFatal, _ orNone) document.Decision {
			return m(the(X, verdict("rejected"), code("RE")).Attempted(taken(true), with(rejected(document.ForwardBestEffort)), at))
		}, want{to: F, cause: "attempt", verdict: "rejected", status: "claimed", code: "RE"}},
		"rejected stays: best-effort fails": {func(m orFatal, _ orNone) document.Decision {
			return m(the(X, verdict("rejected"), code("RE")).Attempted(failed(next), with(rejected(document.ForwardBestEffort)), at))
		}, want{to: X, cause: "attempt", counts: true, verdict: "rejected", status: "claimed", code: "RE"}},
		"rejected to retry: rejection-forwarding retry": {func(m orFatal, _ orNone) document.Decision {
			return m(the(X, verdict("rejected"), code("RE")).Attempted(failed(next), with(rejected(document.ForwardRetry)), at))
		}, want{to: Y, cause: "attempt", due: next, counts: true, verdict: "rejected", status: "claimed", code: "RE"}},
		"rejected to forwarding: the operator verifies again": {func(m orFatal, _ orNone) document.Decision {
			return m(the(X, verdict("rejected"), code("RE")).Reverify(with(), at))
		}, want{to: R, cause: "reverify", due: at, status: "claimed", code: "RE"}},
		"verified again and forwarded: still only the RE": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R, verdict(p), code("RE")).Attempted(taken(true), with(), at))
		}, want{to: F, cause: "attempt", verdict: p, status: "claimed", code: "RE"}},
		"forwarding to forwarded: confirmed": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R, verdict(p)).Attempted(taken(true), with(), at))
		}, want{to: F, cause: "attempt", verdict: p, status: "claimed", code: "AP", sends: true}},
		"forwarding to forwarded: a retry sends the positive MLS too": {func(m orFatal, _ orNone) document.Decision {
			return m(the(Y, verdict(p)).Attempted(taken(false), with(), at))
		}, want{to: F, cause: "attempt", verdict: p, status: "claimed", code: "AB", sends: true}},
		"forwarding to forwarded: trigger api waits for the backend": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R, verdict(p)).Attempted(taken(true), with(api), at))
		}, want{to: F, cause: "attempt", verdict: p, status: "waiting", deadline: deadline}},
		"forwarding to forward_failed: count and next retry": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R, verdict(p)).Attempted(failed(next), with(), at))
		}, want{to: Y, cause: "attempt", due: next, counts: true, verdict: p}},
		"forwarding to forward_failed: an unknown outcome is repeated": {func(m orFatal, _ orNone) document.Decision {
			return m(the(Y, verdict(p)).Attempted(document.Attempt{Answer: delivery.Answer{Category: delivery.Permanent}, NoRetry: true, Next: next}, with(), at))
		}, want{to: Y, cause: "attempt", due: next, counts: true, verdict: p}},
		"forwarding to permanently_failed: attempts used up": {func(m orFatal, _ orNone) document.Decision {
			return m(the(Y, verdict(p)).Attempted(failed(time.Time{}), with(), at))
		}, want{to: E, cause: "exhausted", counts: true, verdict: p, status: "claimed", code: "AB", sends: true, letter: "forward_exhausted"}},
		"forwarding to permanently_failed: the backend forbids a retry": {func(m orFatal, _ orNone) document.Decision {
			a := failed(next)
			a.NoRetry = true
			return m(the(R, verdict(p)).Attempted(a, with(), at))
		}, want{to: E, cause: "refused", counts: true, verdict: p, status: "claimed", code: "AB", sends: true, letter: "forward_exhausted"}},
		"forwarding to permanently_failed: a final answer such as 400": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R, verdict(p)).Attempted(document.Attempt{Verdict: delivery.Refused, Answer: delivery.Answer{Category: delivery.InvalidInput}, Next: next}, with(), at))
		}, want{to: E, cause: "refused", counts: true, verdict: p, status: "claimed", code: "AB", sends: true, letter: "forward_exhausted"}},
		"new to permanently_failed: an inbound MLS without reference": {func(m orFatal, _ orNone) document.Decision {
			return m(the("", kind(document.KindMLS)).Receive(with(), noon))
		}, want{to: E, cause: "no reference", status: "not_applicable", letter: "rejected"}},
		"received to permanently_failed: no forwarder": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R, verdict(p)).NoForwarder(with()))
		}, want{to: E, cause: "no forwarder", verdict: p, status: "claimed", code: "AB", sends: true, letter: "forward_exhausted"}},
		"breaker open: no attempt, no count, due when it may close": {func(_ orFatal, y orNone) document.Decision {
			return y(the(Y, verdict(p)).Postponed(next, with(), at))
		}, want{to: Y, cause: "postponed", quiet: true, due: next, verdict: p}},
		"breaker of a verifier open: the deferred document waits": {func(_ orFatal, y orNone) document.Decision {
			return y(the(D).Postponed(next, with(deferring), at))
		}, want{to: D, cause: "postponed", quiet: true, due: next}},
		"recovery: the lease of an attempt ran out": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R, verdict(p)).LeaseExpired(next, with(), at))
		}, want{to: Y, cause: "lease expired", due: at, verdict: p}},
		"recovery: received is recovered too, while it is verified": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R).LeaseExpired(next, with(), at))
		}, want{to: R, cause: "lease expired", quiet: true, due: at}},
		"recovery: an old document pays for it": {func(m orFatal, _ orNone) document.Decision {
			return m(the(Y, verdict(p)).LeaseExpired(time.Time{}, with(), late))
		}, want{to: E, cause: "exhausted", counts: true, verdict: p, status: "claimed", code: "AB", sends: true, letter: "forward_exhausted"}},
		"recovery: a document that kills its verification comes to an end": {func(m orFatal, _ orNone) document.Decision {
			return m(the(D).LeaseExpired(next, with(deferring), late))
		}, want{to: X, cause: "deadline", verdict: "rejected", status: "claimed", code: "RE", sends: true, letter: "rejected"}},
		"stopped before the irreversible byte: costs nothing": {func(m orFatal, _ orNone) document.Decision {
			return m(the(Y, verdict(p)).Attempted(document.Attempt{Verdict: delivery.Interrupted, Next: next}, with(), at))
		}, want{to: Y, cause: "interrupted", quiet: true, due: at, verdict: p}},
		"stopped while verifying: fail mode closed does not reject": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R).Verified([]document.Result{{Verifier: "a", Ours: true, Interrupted: true}}, with(), at))
		}, want{to: R, cause: "interrupted", quiet: true, due: at}},
		"our own copy cannot be read: fail mode closed does not reject": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R).Verified([]document.Result{{Verifier: "a", Ours: true}}, with(), at))
		}, want{to: R, cause: "payload", quiet: true, due: at.Add(5 * time.Minute)}},
		"our own copy cannot be read for twelve hours": {func(m orFatal, _ orNone) document.Decision {
			return m(the(R).Verified([]document.Result{{Verifier: "a", Ours: true}}, with(), late))
		}, want{to: X, cause: "verifier unavailable", verdict: "rejected", status: "claimed", code: "RE", sends: true, letter: "rejected"}},
		"replay of a dead document": {func(m orFatal, _ orNone) document.Decision {
			return m(the(E, verdict(p), code("AB")).Replay(with(), at))
		}, want{to: Y, cause: "replay", due: at, verdict: p, status: "claimed", code: "AB"}},
		"replay of a deferred document: the operator decides": {func(m orFatal, _ orNone) document.Decision {
			return m(the(D).Replay(with(deferring), at))
		}, want{to: Y, cause: "replay", due: at, verdict: "unverified"}},
		"replay of a forwarded document that waits for its MLS: no deadline while it is on its way": {func(m orFatal, _ orNone) document.Decision {
			return m(the(F, verdict(p), func(f *document.Facts) { f.MLS.Status = document.MLSWaiting }).Replay(with(api), at))
		}, want{to: Y, cause: "replay", due: at, verdict: p, status: "waiting"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(t, c.do(must(t), yes(t)), c.want)
		})
	}
}

// What the state does not allow is refused, and an old document is not postponed.
func TestWhatIsRefused(t *testing.T) {
	t.Parallel()
	p, at := with(), noon
	for name, err := range map[string]error{
		"receive twice":              second(the(document.Received).Receive(p, at)),
		"verify a forwarded one":     second(the(document.Forwarded).Verified(passes, p, at)),
		"verify twice":               second(the(document.Received, verdict("passed")).Verified(says, p, at)),
		"forward unverified":         second(the(document.Received).Attempted(taken(true), p, at)),
		"forward a deferred one":     second(the(document.Deferred).Attempted(taken(true), p, at)),
		"forward a rejected one":     second(the(document.Rejected, verdict("rejected")).Attempted(taken(true), p, at)),
		"forward a forwarded one":    second(the(document.Forwarded).Attempted(taken(true), p, at)),
		"verification off, it is on": second(the(document.Deferred).VerificationOff(p, at)),
		"no forwarder, forwarded":    second(the(document.Forwarded).NoForwarder(p)),
		"reverify a forwarded one":   second(the(document.Forwarded).Reverify(p, at)),
		"reverify a received one":    second(the(document.Received).Reverify(p, at)),
		"replay of nothing":          second(the("").Replay(p, at)),
		"lease of a forwarded one":   second(the(document.Forwarded).LeaseExpired(at, p, at)),
		"mls outcome of none":        second(the(document.Forwarded).MLSOutcome(true, p)),
		"c4 country twice":           second(the(document.Forwarded, func(f *document.Facts) { f.C4Country = "AT" }).ReportC4("DE", p)),
	} {
		if !errors.Is(err, document.ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := the(document.Forwarded).ReportC4("at", p); err == nil {
		t.Error("at is a country")
	}
	d, err := the(document.Forwarded).ReportC4("AT", p)
	if err != nil || d.C4Country != "AT" || !d.Note {
		t.Errorf("%+v %v", d, err)
	}
	if _, ok := the(document.Retry).Postponed(at, p, noon.Add(p.PostponeFor)); ok {
		t.Error("an old document is postponed")
	}
	if _, ok := the(document.Forwarded).Postponed(at, p, at); ok {
		t.Error("a forwarded document is postponed")
	}
	if d, ok := the(document.Rejected).Leave(p); !ok || !d.Due.IsZero() || !d.Quiet {
		t.Errorf("a rejected document does not leave: %+v", d)
	}
	if _, ok := the(document.Rejected).Leave(with(rejected(document.ForwardRetry))); ok {
		t.Error("a rejected document leaves before it was forwarded")
	}
	d, err = the(document.Received, verdict("passed")).Attempted(document.Attempt{Verdict: delivery.Accepted, C4Country: "AT"}, p, at)
	if err != nil || d.C4Country != "AT" {
		t.Errorf("%+v %v", d, err)
	}
}

func second(_ document.Decision, err error) error { return err }
