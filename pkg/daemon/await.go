package daemon

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/migrations"
)

const (
	firstPause = 100 * time.Millisecond
	longPause  = 3 * time.Second
	tryTimeout = 5 * time.Second
)

// awaitDatabase returns when PostgreSQL answers and its schema bears this
// binary. A schema that is missing or behind is waited for: the migration may
// still be running. Only one that has left this binary behind is final.
func awaitDatabase(ctx context.Context, db *pgxpool.Pool, log zerolog.Logger) error {
	c := db.Config().ConnConfig
	where := fmt.Sprintf("%s:%d/%s", c.Host, c.Port, c.Database)
	told := newTeller(log)
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		err := tryDatabase(ctx, db)
		var refused *migrations.TooOldError
		if errors.As(err, &refused) {
			return fmt.Errorf("database %s: %w", where, err)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("wait for database %s: %w", where, context.Cause(ctx))
		}
		told.tell("database", where, err)
		if err == nil {
			return nil
		}
		if err := sleep(ctx, pause); err != nil {
			return fmt.Errorf("wait for database %s: %w", where, err)
		}
	}
}

func tryDatabase(ctx context.Context, db *pgxpool.Pool) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	conn, err := db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return migrations.Check(ctx, conn.Conn())
}

// awaitNATS returns when the connection is up. The client keeps trying, and the
// bus logs why it cannot.
func awaitNATS(ctx context.Context, nc *nats.Conn) error {
	changed := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changed)
	for {
		switch {
		case nc.IsConnected():
			return nil
		case nc.IsClosed():
			return fmt.Errorf("wait for NATS: %w", errors.Join(ErrNATSClosed, nc.LastError()))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for NATS: %w", context.Cause(ctx))
		}
	}
}

// sleep waits for half to one and a half of pause, so that processes that lost
// the same server do not come back in step.
func sleep(ctx context.Context, pause time.Duration) error {
	t := time.NewTimer(pause/2 + rand.N(pause))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
