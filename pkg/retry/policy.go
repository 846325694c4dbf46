// Package retry decides what follows an attempt. It is a pure function of the
// outcome, of what has been tried before and of one random number that the
// caller draws, so every rule is a row of a table test. It starts no goroutine
// and cannot fail.
package retry

import (
	"slices"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// OnUnknown is what follows an attempt whose outcome nobody knows.
type OnUnknown string

const (
	UnknownRetry OnUnknown = "retry" // at least once: the default for mail
	UnknownHold  OnUnknown = "hold"  // at most once: a person decides
)

// Shape is how waits are spread, so that what failed together does not come
// back together.
type Shape string

const (
	ShapePreset Shape = "preset" // plus or minus Jitter, as in the seeds
	ShapeFitted Shape = "fitted" // after an outage anything from 0 to the full wait; after a deferral (greylisting) at least half of it
)

// Policy is one schedule. Delay before retry n (from 0) is
// min(Base*Multiplier^n, Cap), spread by Shape.
type Policy struct {
	Base          time.Duration
	Multiplier    float64
	Cap           time.Duration // before jitter
	Jitter        float64       // 0.5 = plus or minus half
	Shape         Shape         // empty: ShapePreset
	MaxRetries    int           // attempts beyond the first
	QuotaFloor    time.Duration // least wait after a QUOTA answer
	MaxRetryAfter time.Duration // longest wait that the other side may ask for
	OnUnknown     OnUnknown
}

// Softa is the schedule of the seed "Delivery & Retries": 30 s, 1, 2, 4 and
// 8 min, plus or minus 50 %, then dead.
func Softa() Policy {
	return Policy{Base: 30 * time.Second, Multiplier: 2, Cap: time.Hour, Jitter: 0.5, MaxRetries: 5,
		QuotaFloor: 5 * time.Minute, MaxRetryAfter: time.Hour, OnUnknown: UnknownRetry}
}

// Phoss is the schedule of the seed "Retry and Resilience Patterns" for sending:
// 3, 6, 12 min and so on, at most an hour, three attempts in all, no jitter.
func Phoss() Policy {
	return Policy{Base: 3 * time.Minute, Multiplier: 2, Cap: time.Hour, MaxRetries: 2,
		QuotaFloor: 5 * time.Minute, MaxRetryAfter: time.Hour, OnUnknown: UnknownRetry}
}

// Delay is the wait before the retry that follows `retries` earlier ones, after a
// deferral. random is uniform in [0, 1).
func (p Policy) Delay(retries int, answer delivery.Answer, retryAfter time.Duration, random float64) time.Duration {
	return p.delay(retries, answer, retryAfter, false, random)
}

// spread draws the factor for one wait.
func (p Policy) spread(outage bool, random float64) float64 {
	switch {
	case p.Shape == ShapeFitted && outage:
		return random
	case p.Shape == ShapeFitted:
		return 0.5 + random/2
	}
	return 1 + p.Jitter*(2*random-1)
}

func (p Policy) delay(retries int, answer delivery.Answer, retryAfter time.Duration, outage bool, random float64) time.Duration {
	d := float64(p.Base)
	for range max(0, min(retries, 30)) {
		d = min(d*p.Multiplier, float64(p.Cap))
	}
	d = min(d, float64(p.Cap))
	const longest = 10 * 365 * 24 * time.Hour // far below where a Duration turns negative
	wait := time.Duration(min(d*p.spread(outage, random), float64(longest)))
	wait = max(wait, min(time.Second, p.Base))
	if answer.Category == delivery.Quota {
		wait = max(wait, p.QuotaFloor)
	}
	return max(wait, min(retryAfter, p.MaxRetryAfter))
}

// Past is what is known of a delivery before the attempt that just ended.
type Past struct {
	Retries  int   // retries made so far, manual ones included: a used-up delivery retried by hand gets one chance
	Waiting  []int // ordinals of the recipients that the attempt was for
	Accepted int   // recipients that earlier attempts brought home
}

// Decision is what the ledger is to write.
type Decision struct {
	GiveBack   bool           // the attempt did not happen: back into the queue after Delay, nothing counted
	State      delivery.State // sent, retry, held, failed or dead
	Delay      time.Duration  // of a retry or a give-back
	Answer     delivery.Answer
	Recipients []delivery.RecipientOutcome // those that are settled now
}

// Decide turns one outcome into the move that follows.
func (p Policy) Decide(o delivery.Outcome, past Past, random float64) Decision {
	if o.Verdict == delivery.Interrupted {
		return Decision{GiveBack: true, Delay: time.Duration(float64(time.Second) * random), Answer: o.Answer}
	}
	if len(past.Waiting) == 0 && past.Accepted == 0 {
		past.Waiting = []int{whole}
	}
	settled, waiting, accepted, worst := tally(o, past)
	d := Decision{Answer: o.Answer, Recipients: settled}
	switch {
	case len(waiting) == 0 && accepted > 0:
		d.State = delivery.Sent
	case len(waiting) == 0:
		d.State = delivery.Failed
	case p.OnUnknown == UnknownHold && slices.ContainsFunc(waiting, isUnknown):
		d.State = delivery.Held
	case past.Retries < p.MaxRetries:
		d.State, d.Delay = delivery.Retry, p.delay(past.Retries, worst, o.RetryAfter, o.Server, random)
	default: // used up: whoever still waits is given up
		for _, w := range waiting {
			w.Verdict = delivery.Refused
			d.Recipients = append(d.Recipients, w)
		}
		d.State = delivery.Dead
		if accepted > 0 {
			d.State = delivery.Sent
		}
	}
	if d.Answer.Category == delivery.NoCategory && (d.State != delivery.Sent || d.Answer == (delivery.Answer{}) && o.Verdict != delivery.Accepted) {
		d.Answer = worst
	}
	d.Recipients = slices.DeleteFunc(d.Recipients, func(r delivery.RecipientOutcome) bool { return r.Ordinal == whole })
	return d
}

// whole is the ordinal that stands for a delivery without recipients of its own.
const whole = -1

func isUnknown(r delivery.RecipientOutcome) bool { return r.Verdict == delivery.Unknown }

// tally sorts the recipients of the attempt into settled and still waiting, and
// picks the answer that decides the wait: quota before the rest.
func tally(o delivery.Outcome, past Past) (settled, waiting []delivery.RecipientOutcome, accepted int, worst delivery.Answer) {
	accepted, worst = past.Accepted, o.Answer
	each := make(map[int]delivery.RecipientOutcome, len(o.Recipients))
	for _, r := range o.Recipients {
		each[r.Ordinal] = r
	}
	for _, ordinal := range past.Waiting {
		r, ok := each[ordinal]
		if !ok {
			r = delivery.RecipientOutcome{Ordinal: ordinal, Verdict: o.Verdict, Answer: o.Answer}
		}
		switch {
		case r.Verdict == delivery.Accepted:
			accepted++
			settled = append(settled, r)
		case r.Verdict == delivery.Refused && !r.Answer.Category.Retryable():
			settled = append(settled, r)
			if worst.Category == delivery.NoCategory {
				worst = r.Answer
			}
		default:
			waiting = append(waiting, r)
			if worst.Category != delivery.Quota {
				worst = r.Answer
			}
		}
	}
	return settled, waiting, accepted, worst
}
