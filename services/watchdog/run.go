package watchdog

import (
	"context"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// page is how much one step of a sweep handles (seed: 200).
const page = 200

// Run is the life of one watchdog.
func Run(ctx context.Context, cfg Config) error {
	return daemon.Run(ctx, "watchdog", cfg.Settings, func(taking, working context.Context, p *daemon.Process) error {
		publisher, err := bus.NewPublisher(p.NATS, bus.DefaultAckTimeout)
		if err != nil {
			return err
		}
		relay := outbox.NewRelay(outbox.Config{DB: p.DB, Publisher: outbox.JetStream{Bus: publisher}, Log: p.Log})
		w := &watchdog{log: p.Log, book: ledger.New(p.DB), hand: relay.Hand, policy: cfg.RetryMail.Policy(), maxHold: cfg.MaxHold}

		var watching, support errgroup.Group
		published, endRelay := context.WithCancel(context.WithoutCancel(working))
		defer endRelay()
		support.Go(func() error { return relay.Run(published, working) })
		watching.Go(func() error { w.every(taking, cfg.Sweep, w.untilLapse, w.sweepStuck); return nil })
		watching.Go(func() error { w.every(taking, expiryCheck, nil, w.sweepOverdue); return nil })
		watching.Go(func() error { w.every(taking, upkeepCheck, nil, w.upkeep); return nil })
		err = watching.Wait()
		endRelay()
		if e := support.Wait(); err == nil {
			err = e
		}
		return err
	})
}

type watchdog struct {
	log     zerolog.Logger
	book    *ledger.Ledger
	hand    func(outbox.Batch)
	policy  retry.Policy
	maxHold time.Duration
}

// every runs do at once and then each period, or sooner when next says so; it
// returns when ctx has ended.
func (w *watchdog) every(ctx context.Context, period time.Duration, next func(context.Context) time.Duration, do func(context.Context) error) {
	for ctx.Err() == nil {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn().Err(err).Msg("a sweep was cut short; the next one goes on")
		}
		wait := period
		if next != nil {
			wait = min(wait, next(ctx))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}
