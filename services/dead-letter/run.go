package deadletter

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/streams"
)

// Run is the life of one dead-letter service.
func Run(ctx context.Context, cfg Config) error {
	return daemon.Run(ctx, "dead-letter", cfg.Settings, func(taking, working context.Context, p *daemon.Process) error {
		publisher, err := bus.NewPublisher(p.NATS, bus.DefaultAckTimeout)
		if err != nil {
			return err
		}
		js, err := jetstream.New(p.NATS)
		if err != nil {
			return fmt.Errorf("jetstream: %w", err)
		}
		relay := outbox.NewRelay(outbox.Config{DB: p.DB, Publisher: outbox.JetStream{Bus: publisher}, Log: p.Log})
		a := &archivist{log: p.Log, book: ledger.New(p.DB), hand: relay.Hand}

		var taken, support errgroup.Group
		published, endRelay := context.WithCancel(context.WithoutCancel(working))
		defer endRelay()
		support.Go(func() error { return relay.Run(published, working) })
		taken.Go(func() error {
			return bus.Consume(taking, js, bus.Consumer{Stream: streams.Events, Durable: "dead-letter", Filters: filters(), MaxBatch: 200, Log: p.Log}, a.take)
		})
		taken.Go(func() error { return bus.Serve(taking, p.NATS, operations(a.book, p.Log)) })
		err = taken.Wait()
		endRelay()
		if e := support.Wait(); err == nil {
			err = e
		}
		return err
	})
}
