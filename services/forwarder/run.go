package forwarder

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/clerk"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/all"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/queue"
	"github.com/posthouse-io/posthouse/pkg/verify"
	"github.com/posthouse-io/posthouse/pkg/verify/shield"
)

const documents = queue.Documents

// lastWrite is how long results may still be stored after working has ended.
const lastWrite = 1500 * time.Millisecond

// Run is the life of one forwarder.
func Run(ctx context.Context, cfg Config) error {
	return daemon.Run(ctx, "forwarder", cfg.Settings, func(taking, working context.Context, p *daemon.Process) error {
		return run(taking, working, p, cfg)
	})
}

func run(taking, working context.Context, p *daemon.Process, cfg Config) error {
	publisher, err := bus.NewPublisher(p.NATS, bus.DefaultAckTimeout)
	if err != nil {
		return err
	}
	js, err := jetstream.New(p.NATS)
	if err != nil {
		return fmt.Errorf("jetstream: %w", err)
	}
	var way forward.Forwarder
	if cfg.Forward.Enabled() {
		if way, err = all.New(cfg.Forward, p.NATS); err != nil {
			return err
		}
		defer func() { _ = way.Close() }()
	}
	book := ledger.New(p.DB)
	docs, err := docket.Open(taking, p.DB, book, &cfg.Policy)
	if err != nil {
		return err
	}
	verifiers, err := verify.New(cfg.Verify)
	if err != nil {
		return err
	}
	defer func() { _ = verifiers.Close() }()
	relay := outbox.NewRelay(outbox.Config{DB: p.DB, Publisher: outbox.JetStream{Bus: publisher}, Log: p.Log})
	lanes := lane.New(p.DB, relay.Hand)

	storing, endStoring := daemon.Outlive(working, lastWrite)
	defer endStoring()

	cfg.Breaker.MinRejected = cfg.RejectedWait
	desk := &clerk.Clerk{Docs: docs, Policy: &cfg.Policy, Hand: relay.Hand, Storing: storing, Log: p.Log}
	work := &worker{log: p.Log, tracer: p.Tracer, desk: desk, policy: &cfg.Policy, schedule: cfg.Schedule, forward: way, maxHold: cfg.MaxHold}
	work.askers = shield.Askers(verifiers.Askers(), cfg.Breaker, clerk.Outage(book, relay.Hand, p.Log))
	source := docs.Documents()
	work.breakers = breaker.New(cfg.Breaker, lane.Store{Lanes: lanes}, func(_ context.Context, c breaker.Change) {
		if c.To.State == breaker.Open {
			p.Log.Warn().Str("lane", c.To.Key).Int("failures", c.To.Failures).Str("cause", c.To.Cause).Msg(c.Message)
			return
		}
		p.Log.Info().Str("lane", c.To.Key).Msg("circuit breaker " + string(c.To.State))
	})
	source.HalfOpen = func(ctx context.Context, id int32) error {
		_, _, err := lanes.HalfOpen(ctx, id)
		return err
	}
	loop := claim.NewLoop(claim.Config{Instance: p.Instance, Slots: cfg.Concurrency, LaneSlots: cfg.Concurrency, Term: cfg.Lease, Poll: cfg.Poll, IdlePoll: cfg.IdlePoll,
		MaxClaim: cfg.Concurrency, Log: p.Log}, source, work.work)
	bell := ringer{nc: p.NATS, instance: p.Instance, loop: loop, forget: work.breakers.Reset}
	desk.Ready = bell.ring
	in := &intake{log: p.Log, book: book, docs: docs, modes: cfg.Duplicates, hand: relay.Hand, ready: bell.ring, fetch: newFetcher(cfg.FetchPrivate),
		places: semaphore.NewWeighted(fetching), memory: semaphore.NewWeighted(atOnce), giveUp: cfg.FetchFor}
	stopRing, err := bus.OnRing(p.NATS, documents, bell.heard)
	if err != nil {
		return err
	}
	defer stopRing()

	var writing, support errgroup.Group
	published, endRelay := context.WithCancel(context.WithoutCancel(storing))
	defer endRelay()
	support.Go(func() error { return relay.Run(published, storing) })
	writing.Go(func() error { return loop.Run(taking, working) })
	writing.Go(func() error { return in.run(taking, js) })
	writing.Go(func() error {
		return bus.Serve(taking, p.NATS, operations(&operator{desk: desk, policy: &cfg.Policy}, p.Log))
	})
	err = writing.Wait()
	if e := work.breakers.Flush(storing); e != nil {
		p.Log.Warn().Err(e).Msg("an open circuit breaker could not be stored")
	}
	endRelay()
	if e := support.Wait(); err == nil {
		err = e
	}
	return err
}

// ringer tells of ready work, to our own loop and by the bell.
type ringer struct {
	nc       *nats.Conn
	instance string
	loop     *claim.Loop[docket.Claimed]
	forget   func(lane string) // what is counted of it
}

func (r ringer) ring(m docket.Moved) {
	if m.Kind == documents {
		r.loop.Announce(m.Group)
	}
	_ = bus.Ring(r.nc, m.Kind, claim.Bell{From: r.instance, Groups: []claim.Group{m.Group}}) // nobody need hear it
}

func (r ringer) heard(payload []byte) {
	var b claim.Bell
	if json.Unmarshal(payload, &b) != nil || b.From == r.instance {
		return
	}
	if b.Forget != "" {
		r.forget(b.Forget)
	}
	if len(b.Groups) == 0 {
		r.loop.Wake()
		return
	}
	r.loop.Announce(b.Groups...)
}
