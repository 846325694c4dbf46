package watchdog

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// page is how much one step of a sweep handles (seed: 200).
const page = 200

// dutyCheck is how often a watchdog asks whether a duty is due.
const dutyCheck = time.Minute

// Run is the life of one watchdog.
func Run(ctx context.Context, cfg Config) error {
	return daemon.Run(ctx, "watchdog", cfg.Settings, func(taking, working context.Context, p *daemon.Process) error {
		publisher, err := bus.NewPublisher(p.NATS, bus.DefaultAckTimeout)
		if err != nil {
			return err
		}
		relay := outbox.NewRelay(outbox.Config{DB: p.DB, Publisher: outbox.JetStream{Bus: publisher}, Log: p.Log})
		w, err := newWatchdog(p, cfg, publisher, relay.Hand)
		if err != nil {
			return err
		}

		var watching, support errgroup.Group
		published, endRelay := context.WithCancel(context.WithoutCancel(working))
		defer endRelay()
		support.Go(func() error { return relay.Run(published, working) })
		for _, round := range w.rounds() {
			watching.Go(func() error { w.every(taking, round); return nil })
		}
		watching.Go(func() error { return bus.Serve(taking, p.NATS, w.operations()) })
		err = watching.Wait()
		endRelay()
		if e := support.Wait(); err == nil {
			err = e
		}
		return err
	})
}

type watchdog struct {
	cfg      Config
	log      zerolog.Logger
	instance string
	book     *ledger.Ledger
	nats     *nats.Conn
	js       jetstream.JetStream
	bus      *bus.Publisher
	hand     func(outbox.Batch)
	policy   retry.Schedules
	count    meters
	pulse    pulse         // of the lag round alone
	asked    chan struct{} // a replay was asked for here
	db       *pgxpool.Pool
	docs     atomic.Pointer[docket.Docket] // nil until first needed: it asks the database for its lanes
}

func newWatchdog(p *daemon.Process, cfg Config, publisher *bus.Publisher, hand func(outbox.Batch)) (*watchdog, error) {
	js, err := jetstream.New(p.NATS)
	if err != nil {
		return nil, fmt.Errorf("jetstream: %w", err)
	}
	count, err := newMeters(p.Meter)
	if err != nil {
		return nil, err
	}
	return &watchdog{cfg: cfg, log: p.Log, instance: p.Instance, db: p.DB, book: ledger.New(p.DB), nats: p.NATS, js: js, bus: publisher, hand: hand,
		policy: cfg.RetryMail.Schedules(), count: count, asked: make(chan struct{}, 1)}, nil
}

func (w *watchdog) republisher() republisher {
	return republisher{book: w.book, bus: w.bus, rate: w.cfg.ReplayRate}
}

// round is something to be looked at again and again.
type round struct {
	what   string
	period time.Duration
	sooner func(context.Context) time.Duration // nil: never
	wake   <-chan struct{}                     // nil: by nobody
	do     func(context.Context) error
}

func (w *watchdog) rounds() []round {
	all := []round{
		{what: "stuck work", period: w.cfg.Sweep, sooner: w.untilLapse, do: w.sweepStuck},
		{what: "expired work", period: expiryCheck, do: w.sweepOverdue},
		{what: "deferred work", period: w.cfg.Sweep, do: w.sweepDeferred},
		{what: "stuck documents", period: w.cfg.Sweep, sooner: w.untilLapse, do: w.sweepDocuments},
		{what: "answers to C2", period: time.Minute, sooner: w.untilAnswer, do: w.answerC2},
		{what: "upkeep", period: upkeepCheck, do: w.upkeep},
		{what: "lag", period: w.cfg.Lag.Check, do: w.checkLag},
		{what: "comparison", period: dutyCheck, do: w.reconcile},
		{what: "letters", period: dutyCheck, do: w.reconcileLetters},
		{what: "replays", period: replayCheck, wake: w.asked, do: w.replays},
		{what: "retention", period: upkeepCheck, do: w.retention},
	}
	if w.cfg.Canary.Address != "" {
		all = append(all, round{what: "canary", period: w.cfg.Canary.Every / 4, do: w.canary})
	}
	return all
}

// every goes a round at once and then each period, or sooner when the round says so;
// it returns when ctx has ended.
func (w *watchdog) every(ctx context.Context, r round) {
	for ctx.Err() == nil {
		if err := r.do(ctx); err != nil && ctx.Err() == nil {
			w.log.Warn().Err(err).Str("round", r.what).Msg("a round was cut short; the next one goes on")
		}
		wait := r.period
		if r.sooner != nil {
			wait = min(wait, r.sooner(ctx))
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-r.wake:
		}
		t.Stop()
	}
}
