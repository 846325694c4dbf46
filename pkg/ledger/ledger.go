package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Ledger writes to one database.
type Ledger struct {
	db *pgxpool.Pool
}

// New opens the book on a migrated database.
func New(db *pgxpool.Pool) *Ledger { return &Ledger{db: db} }

// ErrNotFound says that there is no such delivery (or none of this tenant).
var ErrNotFound = errors.New("no such delivery")

// pipeline is one round trip and one transaction: its statements run until the
// first error, which undoes all of them.
type pipeline struct {
	batch pgx.Batch
	err   error
}

func newPipeline() *pipeline {
	p := &pipeline{}
	p.batch.Queue(pinPlanner)
	return p
}

func (p *pipeline) exec(sql string, args ...any) {
	p.batch.Queue(sql, args...)
}

func (p *pipeline) query(sql string, scan func(pgx.Rows) error, args ...any) {
	p.batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

func (l *Ledger) run(ctx context.Context, p *pipeline) error {
	return l.db.SendBatch(ctx, &p.batch).Close()
}

// begin runs body in a transaction of several round trips, for the rare moves
// that must read before they write.
func (l *Ledger) begin(ctx context.Context, what string, body func(pgx.Tx) error) error {
	if err := pgx.BeginFunc(ctx, l.db, body); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// ids converts to the array type that pgx takes for uuid[].
func ids[T ~[16]byte](in []T) [][16]byte {
	out := make([][16]byte, len(in))
	for i, id := range in {
		out[i] = id
	}
	return out
}

// noPartition tells a row whose month has no partition yet: an id minted by a
// clock that runs ahead or behind.
func noPartition(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23514" && pg.ConstraintName == ""
}

// ensureMonth makes the partitions for the month that id falls in.
func (l *Ledger) ensureMonth(ctx context.Context, id delivery.ID) error {
	if _, err := l.db.Exec(ctx, ensureHistory, id.Time(), 1); err != nil {
		return fmt.Errorf("make history partitions: %w", err)
	}
	return nil
}

// newBatchID names an outbox row.
func newBatchID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
