package watchdog

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// Codes of the seed for work that was found without its worker.
const (
	recovered = "ZOMBIE_RECOVERED"
	exhausted = "ZOMBIE_EXHAUSTED"
)

const (
	lapseGrace  = 1100 * time.Millisecond // a lease counts as lapsed one second after its end
	lapseAgain  = time.Second             // least pause between two looks
	noWorker    = 10 * time.Second        // pause when there is no worker that could take work
	expiryCheck = 5 * time.Second
	upkeepCheck = 10 * time.Minute
)

// untilLapse is when the earliest lease will have lapsed, should nobody renew it.
func (w *watchdog) untilLapse(ctx context.Context) time.Duration {
	d, err := w.book.NextLapse(ctx)
	if err != nil || d < 0 {
		return noWorker
	}
	return max(d+lapseGrace, lapseAgain)
}

// sweepStuck settles attempts whose worker is gone as unknown, page by page, each
// row once however many it must pass over.
func (w *watchdog) sweepStuck(ctx context.Context) error {
	var after delivery.ID
	for {
		found, err := w.book.Stuck(ctx, w.maxHold, after, page)
		if err != nil || len(found) == 0 {
			return err
		}
		after = found[len(found)-1].ID
		settlements := make([]ledger.Settlement, len(found))
		for i, c := range found {
			settlements[i] = w.judge(c)
		}
		results, events, err := w.book.Settle(ctx, settlements)
		w.hand(events)
		if err != nil {
			return err
		}
		for i, r := range results {
			if r != ledger.Moved {
				continue
			}
			s := settlements[i]
			line := w.log.Warn()
			if s.Decision.State != delivery.Retry {
				line = w.log.Error()
			}
			line.Stringer("delivery", s.Claimed.ID).Str("tenant", s.Claimed.Tenant).Stringer("worker", s.Claimed.Worker).Int32("fence", s.Claimed.Fence).
				Str("state", string(s.Decision.State)).Str("code", s.Decision.Answer.Code).Msg("found without its worker: the outcome of its attempt is unknown")
		}
	}
}

// judge gives an attempt without a result to the policy for unknown outcomes.
func (w *watchdog) judge(c ledger.Claimed) ledger.Settlement {
	past := retry.Past{Retries: c.Retries, Accepted: c.Accepted, Waiting: make([]int, len(c.Recipients))}
	for i, r := range c.Recipients {
		past.Waiting[i] = r.Ordinal
	}
	answer := delivery.Answer{Category: delivery.Transient, Phase: "lease", Code: recovered, Text: "the worker that had it is gone; whether its attempt arrived is unknown"}
	d := w.policy.Decide(delivery.Outcome{Answer: answer}, past, rand.Float64())
	switch d.State {
	case delivery.Retry:
		d.Delay = 0 // due at once, as in the seed: the lease was the wait
	case delivery.Dead:
		d.Answer.Code = exhausted
	}
	return ledger.Settlement{Claimed: c, Decision: d, Verdict: delivery.Unknown, Attempt: true, Cause: "lease lapsed"}
}
