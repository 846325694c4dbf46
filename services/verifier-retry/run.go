// Package verifierretry is the service that asks again about documents whose
// verifier was away: at a fixed interval, until the verifier has spoken or the time
// is over (seed, "Deferred Verification Retry"). A document that passes goes on where
// it stopped; the budget of its forwarding is untouched.
//
// Any number of instances share the work by leases. What follows from an answer is
// decided by package document. Each goroutine is owned by Run, which returns when all
// have ended.
package verifierretry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/clerk"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/queue"
	"github.com/posthouse-io/posthouse/pkg/verify"
	"github.com/posthouse-io/posthouse/pkg/verify/shield"
)

// Config is everything verifier-retry can be told.
type Config struct {
	daemon.Settings

	Policy  document.Policy
	Verify  verify.Config
	Breaker breaker.Settings `envPrefix:"CIRCUIT_BREAKER_"`

	Concurrency int           `env:"VERIFICATION_RETRY_CONCURRENCY" envDefault:"8" min:"1" max:"1000" doc:"Deferred documents in work at once in one instance."`
	Lease       time.Duration `env:"SENDER_LEASE" envDefault:"15s" min:"1s" max:"10m" doc:"Term of a worker's lease; renewed each third of it."`
	MaxHold     time.Duration `env:"MAX_HOLD" envDefault:"10m" doc:"Longest time one attempt may take; at least the longest time-out of its phases."`
	Poll        time.Duration `env:"SENDER_POLL" envDefault:"500ms" min:"10ms" max:"1m" doc:"How often the queue is looked at while there is work; new work rings a bell before that."`
	IdlePoll    time.Duration `env:"SENDER_IDLE_POLL" envDefault:"5s" min:"10ms" max:"10m" doc:"How often it is looked at when there is none."`
}

// Validate finds combinations that are unsafe.
func (c Config) Validate() error {
	var faults []error
	if longest := c.Verify.LongestAsk(); c.Policy.Verification && c.MaxHold < longest {
		faults = append(faults, fmt.Errorf("MAX_HOLD: %s is less than the verifiers may take (%s)", c.MaxHold, longest))
	}
	faults = append(faults, c.Verify.Required(c.Policy.Verification))
	return errors.Join(append(faults, c.Breaker.Check("CIRCUIT_BREAKER_")...)...)
}

// lastWrite is how long results may still be stored after working has ended.
const lastWrite = 1500 * time.Millisecond

// Run is the life of one verifier-retry.
func Run(ctx context.Context, cfg Config) error {
	return daemon.Run(ctx, "verifier-retry", cfg.Settings, func(taking, working context.Context, p *daemon.Process) error {
		return run(taking, working, p, cfg)
	})
}

func run(taking, working context.Context, p *daemon.Process, cfg Config) error {
	publisher, err := bus.NewPublisher(p.NATS, bus.DefaultAckTimeout)
	if err != nil {
		return err
	}
	verifiers, err := verify.New(cfg.Verify)
	if err != nil {
		return err
	}
	defer func() { _ = verifiers.Close() }()
	book := ledger.New(p.DB)
	docs, err := docket.Open(taking, p.DB, book, &cfg.Policy)
	if err != nil {
		return err
	}
	relay := outbox.NewRelay(outbox.Config{DB: p.DB, Publisher: outbox.JetStream{Bus: publisher}, Log: p.Log})
	storing, endStoring := daemon.Outlive(working, lastWrite)
	defer endStoring()

	desk := &clerk.Clerk{Docs: docs, Policy: &cfg.Policy, Hand: relay.Hand, Storing: storing, Log: p.Log, Ready: func(m docket.Moved) {
		_ = bus.Ring(p.NATS, m.Kind, claim.Bell{From: p.Instance, Groups: []claim.Group{m.Group}}) // nobody need hear it
	}}
	askers := shield.Askers(verifiers.Askers(), cfg.Breaker, clerk.Outage(book, relay.Hand, p.Log))
	work := func(ctx context.Context, c docket.Claimed, _ *claim.Lease) {
		if !cfg.Policy.Verification {
			desk.Store(c, nil, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
				return f.VerificationOff(&cfg.Policy, now)
			})
			return
		}
		asking, cancel := context.WithTimeout(ctx, cfg.MaxHold)
		defer cancel()
		desk.Verify(asking, c, askers)
	}
	loop := claim.NewLoop(claim.Config{Instance: p.Instance, Slots: cfg.Concurrency, LaneSlots: cfg.Concurrency, Term: cfg.Lease, Poll: cfg.Poll, IdlePoll: cfg.IdlePoll,
		MaxClaim: cfg.Concurrency, Log: p.Log}, docs.Deferred(), work)
	stopRing, err := bus.OnRing(p.NATS, queue.Deferred, func(payload []byte) {
		var b claim.Bell
		if json.Unmarshal(payload, &b) == nil {
			loop.Announce(b.Groups...)
		}
	})
	if err != nil {
		return err
	}
	defer stopRing()

	var support errgroup.Group
	published, endRelay := context.WithCancel(context.WithoutCancel(storing))
	defer endRelay()
	support.Go(func() error { return relay.Run(published, storing) })
	err = loop.Run(taking, working)
	endRelay()
	if e := support.Wait(); err == nil {
		err = e
	}
	return err
}
