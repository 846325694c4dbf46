package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/quota"
)

// Ledger writes to one database.
type Ledger struct {
	db       *pgxpool.Pool
	ready    func(...claim.Group)
	charging bool
	quotas   quota.Config
	notice   func(outbox.Batch)
}

// New opens the book on a migrated database.
func New(db *pgxpool.Pool) *Ledger { return &Ledger{db: db, ready: func(...claim.Group) {}} }

// ErrNotFound says that there is no such delivery (or none of this tenant).
var ErrNotFound = errors.New("no such delivery")

// pipeline is one round trip and one transaction: its statements run until the
// first error, which undoes all of them.
type pipeline struct{ batch pgx.Batch }

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

// insist is run for a pipeline that several may run over the same rows.
func (l *Ledger) insist(ctx context.Context, queue func(*pipeline)) error {
	return again(ctx, func() error {
		p := newPipeline()
		queue(p)
		return l.run(ctx, p)
	})
}

// begin runs body in a transaction of several round trips, for the rare moves
// that must read before they write. The planner is pinned here too: a plan made
// without it would be kept, and used by the next pipeline on this connection.
func (l *Ledger) begin(ctx context.Context, what string, body func(pgx.Tx) error) error {
	err := again(ctx, func() error {
		return pgx.BeginFunc(ctx, l.db, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, pinPlanner); err != nil {
				return err
			}
			return body(tx)
		})
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// again repeats what PostgreSQL has undone as the victim of a deadlock: two
// batches may name the same rows in different orders, and whoever is left
// standing has committed, so a few tries suffice.
func again(ctx context.Context, do func() error) error {
	const tries = 5
	for n := 1; ; n++ {
		err := do()
		var pg *pgconn.PgError
		if err == nil || n == tries || ctx.Err() != nil || !errors.As(err, &pg) || pg.Code != "40P01" && pg.Code != "40001" {
			return err
		}
	}
}

// ids converts to the array type that pgx takes for uuid[].
func ids[T ~[16]byte](in []T) [][16]byte {
	out := make([][16]byte, len(in))
	for i, id := range in {
		out[i] = id
	}
	return out
}

// Refused tells an error that speaks about the content (data, constraint,
// statement), which no repeat will mend, from trouble that one may.
func Refused(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 {
		return false
	}
	switch pg.Code[:2] {
	case "21", "22", "23", "42":
		return pg.Code != "42P01" && pg.Code != "42703" // a table or column that a migration is about to bring
	}
	return false
}

// OnReady has f called with the groups in which a settled delivery has made
// blocked work ready, after the commit: nobody need poll for it. Set it before
// the first use.
func (l *Ledger) OnReady(f func(...claim.Group)) { l.ready = f }

// noPartition tells a row whose month has no partition yet: an id minted by a
// clock that runs ahead or behind.
func noPartition(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23514" && pg.ConstraintName == ""
}

// newBatchID names an outbox row.
func newBatchID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
