package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/pinned"
)

// Join registers a worker under a fresh id with a lease of the given term.
func (q *Queue) Join(ctx context.Context, instance string, term time.Duration) (uuid.UUID, error) {
	id := uuid.Must(uuid.NewV7())
	if _, err := q.db.Exec(ctx, insertWorker, [16]byte(id), instance, term.Seconds()); err != nil {
		return uuid.Nil, fmt.Errorf("join as worker %s: %w", instance, err)
	}
	return id, nil
}

// Renew extends a worker's lease. It returns claim.ErrLapsed when there was none left
// to extend: the worker must stop and come back under a new id.
func (q *Queue) Renew(ctx context.Context, worker uuid.UUID, term time.Duration) error {
	tag, err := q.db.Exec(ctx, renewWorker, [16]byte(worker), term.Seconds())
	if err != nil {
		return fmt.Errorf("renew lease of worker %s: %w", worker, err)
	}
	if tag.RowsAffected() == 0 {
		return claim.ErrLapsed
	}
	return nil
}

// Leave ends a worker that owns nothing any more; if it still does, its lease runs
// out and the sweep takes over.
func (q *Queue) Leave(ctx context.Context, worker uuid.UUID) error {
	p := pinned.New()
	p.Exec(deleteWorker, [16]byte(worker))
	if err := p.Run(ctx, q.db); err != nil {
		return fmt.Errorf("leave as worker %s: %w", worker, err)
	}
	return nil
}

// NextLapse tells how long until the earliest lease may lapse; negative: there is no
// worker.
func (q *Queue) NextLapse(ctx context.Context) (time.Duration, error) {
	var seconds *float64
	p := pinned.New()
	p.Query(nextLapse, func(rows pgx.Rows) error { return rows.Scan(&seconds) })
	if err := p.Run(ctx, q.db); err != nil {
		return -1, fmt.Errorf("next lapse: %w", err)
	}
	if seconds == nil {
		return -1, nil
	}
	return max(0, time.Duration(*seconds*float64(time.Second))), nil
}

// ForgetWorkers removes workers that lapsed a minute ago and own nothing.
func (q *Queue) ForgetWorkers(ctx context.Context) error {
	p := pinned.New()
	p.Exec(forgetWorkers)
	if err := p.Run(ctx, q.db); err != nil {
		return fmt.Errorf("forget lapsed workers: %w", err)
	}
	return nil
}
