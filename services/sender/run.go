package sender

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/quota"
	"github.com/posthouse-io/posthouse/pkg/settle"
	"github.com/posthouse-io/posthouse/pkg/transport"
	"github.com/posthouse-io/posthouse/pkg/transport/smtp"
	"github.com/posthouse-io/posthouse/streams"
)

// lastWrite is how long results may still be stored after working has ended.
const lastWrite = 1500 * time.Millisecond

// Run is the life of one sender, from the first connection to the last result.
func Run(ctx context.Context, cfg Config) error {
	mail, err := smtp.New(cfg.Mail)
	if err != nil {
		return err
	}
	defer func() { _ = mail.Close() }()
	return RunWith(ctx, cfg, mail)
}

// RunWith is Run with another way out in place of the mail server: for
// measurements and tests. It does not close the transport.
func RunWith(ctx context.Context, cfg Config, mail transport.Transport) error {
	return daemon.Run(ctx, "sender", cfg.Settings, func(taking, working context.Context, p *daemon.Process) error {
		return run(taking, working, p, cfg, mail)
	})
}

func run(taking, working context.Context, p *daemon.Process, cfg Config, mail transport.Transport) error {
	publisher, err := bus.NewPublisher(p.NATS, bus.DefaultAckTimeout)
	if err != nil {
		return err
	}
	js, err := jetstream.New(p.NATS)
	if err != nil {
		return fmt.Errorf("jetstream: %w", err)
	}
	book := ledger.New(p.DB)
	key := mailKey(cfg.Mail)
	relay := outbox.NewRelay(outbox.Config{DB: p.DB, Publisher: outbox.JetStream{Bus: publisher}, Log: p.Log})
	book.UseQuotas(cfg.Quota, relay.Hand)
	lanes := lane.New(p.DB, relay.Hand)
	limits := lane.Limits{PerMinute: cfg.RateLimit, Daily: cfg.DailyLimit, MaxInFlight: cfg.MaxInFlight}
	laneID, changed, err := mailLane(taking, book, lanes, key, limits)
	if err != nil {
		return err
	}
	if changed {
		p.Log.Info().Int("per_minute", cfg.RateLimit).Int("daily", cfg.DailyLimit).Int("in_flight", cfg.MaxInFlight).Msg("the limits of the mail server have changed, for all senders")
	}
	settler := settle.New(book, relay.Hand, p.Log)
	count, err := newCounters(p.Meter)
	if err != nil {
		return err
	}

	storing, endStoring := daemon.Outlive(working, lastWrite)
	defer endStoring()

	s := &sender{log: p.Log, tracer: p.Tracer, mail: mail, policy: cfg.RetryMail.Schedules(), settler: settler, storing: storing, maxHold: cfg.MaxHold, count: count,
		late: latePreparer{book: book, preparer: preparer{server: cfg.Mail, lane: laneID}}}
	cfg.Breaker.MinRejected = cfg.RejectedWait
	s.protect = &protection{log: p.Log, settings: cfg.Breaker, lanes: lanes, book: book, hand: relay.Hand, count: count, slots: cfg.MailConcurrency,
		mailLane: lane.View{ID: laneID, Key: key, Breaker: lane.Closed}}
	s.protect.start()
	loop := claim.NewLoop(claim.Config{Instance: p.Instance, Slots: cfg.Slots, LaneSlots: cfg.MailConcurrency, Term: cfg.Lease,
		Poll: cfg.Poll, IdlePoll: cfg.IdlePoll, MaxClaim: settle.MaxBatch, Log: p.Log}, ledger.Deliveries{Ledger: book, HalfOpen: s.protect.halfOpen}, s.work)
	book.OnReady(loop.Announce)
	in := &intake{log: p.Log, book: book, nc: p.NATS, instance: p.Instance, hand: relay.Hand, loop: loop,
		prepare: s.late.preparer, count: count, forget: s.protect.breakers.Reset}
	s.late.tell, s.protect.wake = in.tell, in.wakeAll
	ops := &operator{book: book, lanes: lanes, quotas: quota.New(p.DB, cfg.Quota), hand: relay.Hand, tell: in.tell, wake: in.wakeAll,
		instance: p.Instance, breakers: s.protect.breakers, forget: in.reset}
	jobs := newJobs(ops, p.Instance, p.Log)
	p.Health.Add("results", func(context.Context) error { return settler.Healthy() })
	stopRing, err := bus.OnRing(p.NATS, bellKind, in.ring)
	if err != nil {
		return err
	}
	defer stopRing()

	// What writes ends before what stores, what stores before what publishes.
	var writing, support errgroup.Group
	stored, endSettler := context.WithCancel(storing)
	published, endRelay := context.WithCancel(context.WithoutCancel(storing))
	defer endSettler()
	defer endRelay()
	support.Go(func() error { settler.Run(stored); return nil })
	support.Go(func() error { return relay.Run(published, storing) })
	writing.Go(func() error { return loop.Run(taking, working) })
	writing.Go(func() error { return in.run(taking, js, cfg) })
	writing.Go(func() error { return bus.Serve(taking, p.NATS, operations(ops, jobs, p.Log)) })
	writing.Go(func() error { jobs.run(taking, working); return nil })
	err = writing.Wait()
	if e := s.protect.breakers.Flush(storing); e != nil {
		p.Log.Warn().Err(e).Msg("an open circuit breaker could not be stored")
	}
	endSettler()
	endRelay()
	if e := support.Wait(); err == nil {
		err = e
	}
	return err
}

// mailKey is the key of the lane of a mail server account.
func mailKey(server smtp.Config) string {
	if server.Username != "" {
		return fmt.Sprintf("mail$%s@%s:%d", server.Username, server.Host, server.Port)
	}
	return fmt.Sprintf("mail$%s:%d", server.Host, server.Port)
}

// mailLane finds the lane of the account and gives it its limits; changed tells
// whether they were others before. It waits for a database that is away.
func mailLane(ctx context.Context, book *ledger.Ledger, lanes *lane.Lanes, key string, limits lane.Limits) (id int32, changed bool, err error) {
	for {
		if id, err = book.Lane(ctx, key, string(streams.KindDelivery)); err == nil {
			changed, err = lanes.Configure(ctx, id, limits)
		}
		if err == nil || ctx.Err() != nil || ledger.Refused(err) {
			return id, changed, err
		}
		t := time.NewTimer(500 * time.Millisecond)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}
