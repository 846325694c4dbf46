package watchdog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/planted"
	"github.com/posthouse-io/posthouse/pkg/retry"
	"github.com/posthouse-io/posthouse/streams"
)

// Codes of the seed for work that was found without its worker.
const (
	recovered = ledger.Zombie
	exhausted = "ZOMBIE_EXHAUSTED" // its retries are used up
	poisonous = "ZOMBIE_POISON"    // it may be what kills its workers
)

const (
	lapseGrace  = 300 * time.Millisecond // a lease counts as lapsed a fifth of a second after its end
	lapseAgain  = 500 * time.Millisecond // least pause between two looks
	noWorker    = 10 * time.Second       // pause when there is no worker that could take work
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
// row once however many it must pass over. A row that cannot be settled holds up
// neither its page nor those behind it.
func (w *watchdog) sweepStuck(ctx context.Context) error {
	var after delivery.ID
	var errs []error
	for ctx.Err() == nil {
		found, err := w.book.Stuck(ctx, w.cfg.MaxHold, after, page)
		if err != nil || len(found) == 0 {
			return errors.Join(append(errs, err)...)
		}
		after = found[len(found)-1].ID
		if err := w.settleStuck(ctx, found); err != nil {
			errs = append(errs, w.settleEach(ctx, found))
		}
	}
	return errors.Join(errs...)
}

// settleEach settles a page that cannot be settled as a whole row by row. Many
// failures in a row are the database's, not the rows'.
func (w *watchdog) settleEach(ctx context.Context, found []ledger.Claimed) error {
	const enough = 5
	var errs []error
	failed := 0
	for i := range found {
		err := w.settleStuck(ctx, found[i:i+1])
		if err == nil {
			failed = 0
			continue
		}
		errs = append(errs, fmt.Errorf("stuck delivery %s: %w", found[i].ID, err))
		if failed++; failed == enough {
			break
		}
	}
	return errors.Join(errs...)
}

func (w *watchdog) settleStuck(ctx context.Context, found []ledger.Claimed) error {
	stuck := make([]delivery.ID, len(found))
	for i, c := range found {
		stuck[i] = c.ID
	}
	before, err := w.book.ZombieRuns(ctx, stuck)
	if err != nil {
		return err
	}
	settlements := make([]ledger.Settlement, len(found))
	for i, c := range found {
		settlements[i] = w.judge(c, before[c.ID]+1)
	}
	if planted.Is(planted.Reset) {
		return w.book.GiveBack(ctx, settlements)
	}
	results, events, err := w.book.Settle(ctx, settlements)
	w.hand(events)
	if err != nil {
		return err
	}
	bell := claim.Bell{From: w.instance}
	for i, r := range results {
		if r != ledger.Moved {
			continue
		}
		s := settlements[i]
		line := w.log.Warn()
		if s.Decision.State != delivery.Retry {
			line = w.log.Error()
		} else if !slices.Contains(bell.Groups, s.Claimed.Group()) {
			bell.Groups = append(bell.Groups, s.Claimed.Group())
		}
		line.Stringer("delivery", s.Claimed.ID).Str("tenant", s.Claimed.Tenant).Stringer("worker", s.Claimed.Worker).Int32("fence", s.Claimed.Fence).
			Str("state", string(s.Decision.State)).Str("code", s.Decision.Answer.Code).Msg("found without its worker: the outcome of its attempt is unknown")
	}
	if len(bell.Groups) > 0 {
		_ = bus.Ring(w.nats, string(streams.KindDelivery), bell) // nobody need hear it
	}
	return nil
}

// judge gives an attempt without a result to the policy for unknown outcomes. One
// that has lost its worker run times in a row is not tried again by itself; a
// person may, and then it begins anew.
func (w *watchdog) judge(c ledger.Claimed, run int) ledger.Settlement {
	past := retry.Past{Retries: c.Retries, Accepted: c.Accepted, Waiting: make([]int, len(c.Recipients))}
	for i, r := range c.Recipients {
		past.Waiting[i] = r.Ordinal
	}
	answer := delivery.Answer{Category: delivery.Transient, Phase: "lease", Code: recovered, Text: "the worker that had it is gone; whether its attempt arrived is unknown"}
	policy := w.policy.For(c.Class)
	d := policy.Decide(delivery.Outcome{Answer: answer}, past, rand.Float64())
	switch {
	case d.State == delivery.Retry && run >= w.cfg.Poison:
		past.Retries = policy.MaxRetries
		d = policy.Decide(delivery.Outcome{Answer: answer}, past, 0)
		d.Answer.Code, d.Answer.Text = poisonous, fmt.Sprintf("its worker was gone %d times in a row; it may be what kills them", run)
	case d.State == delivery.Retry:
		d.Delay = 0 // due at once, as in the seed: the lease was the wait
	case d.State == delivery.Dead:
		d.Answer.Code = exhausted
	}
	return ledger.Settlement{Claimed: c, Decision: d, Verdict: delivery.Unknown, Attempt: true, Cause: "lease lapsed"}
}
