package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/migrations"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/services/settings"
	"github.com/posthouse-io/posthouse/streams"
)

type migrateCommand struct {
	DatabaseURL string `env:"DATABASE_URL" help:"PostgreSQL, directly: a transaction pooler cannot hold the lock."`
}

func (c *migrateCommand) Run(t *terminal) error {
	if c.DatabaseURL == "" {
		return daemon.Faults{"DATABASE_URL: it is empty; it must be a PostgreSQL URL, such as postgres://user:password@host:5432/posthouse?sslmode=verify-full"}
	}
	applied, err := migrations.Up(t.ctx, c.DatabaseURL)
	for _, a := range applied {
		fmt.Fprintln(t.out, "applied", a.Name)
	}
	if err == nil {
		fmt.Fprintf(t.out, "the schema is at version %d\n", migrations.Newest())
	}
	return err
}

type streamsCommand struct {
	Apply streamsApply `cmd:"" help:"Create or update the streams; destructive drift is refused."`
}

type streamsApply struct{ server }

func (c *streamsApply) Run(t *terminal) error {
	options, _, err := daemon.Load[streams.Options](t.environ, settings.Names())
	if err != nil {
		return err
	}
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.ctx, 30*time.Second)
	defer cancel()
	report, err := streams.Apply(ctx, js, options)
	fmt.Fprint(t.out, report)
	var drift *streams.DriftError
	if errors.As(err, &drift) {
		return fmt.Errorf("%w\nnothing was changed on that stream: mend its definition, or change the stream by hand if the loss is wanted", err)
	}
	return err
}

type envCommand struct{}

func (envCommand) Run(t *terminal) error { return settings.Print(t.out) }
