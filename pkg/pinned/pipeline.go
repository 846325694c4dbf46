// Package pinned runs statements whose plans are not left to the statistics of the
// moment. Every hot statement here is a nested loop over an index, and a plan that
// was made on an empty table and kept would cost a factor of ten later.
//
// It decides nothing about the statements. A pipeline is one round trip and one
// transaction: its statements run until the first error, which undoes all of them.
// It starts no goroutine.
package pinned

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pipeline collects the statements of one round trip.
type Pipeline struct{ Batch pgx.Batch }

// New begins one, with the planner pinned.
func New() *Pipeline {
	p := &Pipeline{}
	p.Batch.Queue(pinPlanner)
	return p
}

// Exec adds a statement without rows.
func (p *Pipeline) Exec(sql string, args ...any) { p.Batch.Queue(sql, args...) }

// Query adds a statement; scan is called for each of its rows.
func (p *Pipeline) Query(sql string, scan func(pgx.Rows) error, args ...any) {
	p.Batch.Queue(sql, args...).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			if err := scan(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	})
}

// Run sends it, as a transaction of its own.
func (p *Pipeline) Run(ctx context.Context, db *pgxpool.Pool) error {
	return db.SendBatch(ctx, &p.Batch).Close()
}

// RunIn sends it within a transaction.
func (p *Pipeline) RunIn(ctx context.Context, tx pgx.Tx) error {
	return tx.SendBatch(ctx, &p.Batch).Close()
}

// Insist runs a pipeline that several may run over the same rows.
func Insist(ctx context.Context, db *pgxpool.Pool, fill func(*Pipeline)) error {
	return Again(ctx, func() error {
		p := New()
		fill(p)
		return p.Run(ctx, db)
	})
}

// Begin runs body in a transaction of several round trips, for the rare moves that
// must read before they write. The planner is pinned here too: a plan made without
// it would be kept, and used by the next pipeline on this connection.
func Begin(ctx context.Context, db *pgxpool.Pool, what string, body func(pgx.Tx) error) error {
	err := Again(ctx, func() error {
		return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
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

// Again repeats what PostgreSQL has undone as the victim of a deadlock: two batches
// may name the same rows in different orders, and whoever is left standing has
// committed, so a few tries suffice.
func Again(ctx context.Context, do func() error) error {
	const tries = 5
	for n := 1; ; n++ {
		err := do()
		var pg *pgconn.PgError
		if err == nil || n == tries || ctx.Err() != nil || !errors.As(err, &pg) || pg.Code != "40P01" && pg.Code != "40001" {
			return err
		}
	}
}
