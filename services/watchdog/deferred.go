package watchdog

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// tooLong is the code of a delivery that waited for an open breaker past the bound.
const tooLong = "CIRCUIT_OPEN"

// sweepDeferred counts deliveries that are older than the deferral may last and
// whose breaker is still open: each is one attempt that failed, and its schedule
// goes on (seed: "an older transaction falls back to the regular attempt counting").
func (w *watchdog) sweepDeferred(ctx context.Context) error {
	worker, err := w.book.Join(ctx, w.instance+"/deferred", time.Minute)
	if err != nil {
		return err
	}
	defer func() {
		leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = w.book.Leave(leaving, worker) // what it still owns is swept
	}()
	began := time.Now()
	for ctx.Err() == nil && time.Since(began) < 30*time.Second {
		found, err := w.book.Deferred(ctx, worker, w.cfg.DeferMax, page)
		if err != nil || len(found) == 0 {
			return err
		}
		settlements := make([]ledger.Settlement, len(found))
		for i, c := range found {
			settlements[i] = w.refused(c)
		}
		results, events, err := w.book.Settle(ctx, settlements)
		w.hand(events)
		if err != nil {
			return errors.Join(err, ctx.Err())
		}
		for i, r := range results {
			if s := settlements[i]; r == ledger.Moved {
				w.log.Warn().Stringer("delivery", s.Claimed.ID).Str("tenant", s.Claimed.Tenant).Str("state", string(s.Decision.State)).
					Str("lane", s.Claimed.Gate.Key).Msg("has waited for an open breaker for too long: counted as an attempt")
			}
		}
	}
	return nil
}

func (w *watchdog) refused(c ledger.Claimed) ledger.Settlement {
	past := retry.Past{Retries: c.Retries, Accepted: c.Accepted, Waiting: make([]int, len(c.Recipients))}
	for i, r := range c.Recipients {
		past.Waiting[i] = r.Ordinal
	}
	answer := delivery.Answer{Category: delivery.Transient, Phase: "breaker", Code: tooLong, Text: delivery.Bound(lane.Message(c.Gate, time.Now()))}
	d := w.policy.For(c.Class).Decide(delivery.Outcome{Verdict: delivery.Refused, Answer: answer}, past, rand.Float64())
	return ledger.Settlement{Claimed: c, Decision: d, Verdict: delivery.Refused, Attempt: true, Cause: "breaker"}
}
