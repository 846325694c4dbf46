package ledger

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Deferred leases to the worker up to limit deliveries that wait for an open breaker
// and were accepted longer ago than the given age; each comes with its lane as it
// stands. The caller settles them as attempts that failed.
func (l *Ledger) Deferred(ctx context.Context, worker uuid.UUID, age time.Duration, limit int) ([]Claimed, error) {
	var found []Claimed
	var lanes []int32
	err := l.queue.Overdue(ctx, worker, age, limit, l.deferring, func(rows pgx.Rows) error {
		c, err := scanClaimed(rows, nil)
		c.Worker = worker
		found = append(found, c)
		if !slices.Contains(lanes, c.Lane) {
			lanes = append(lanes, c.Lane)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	views, err := l.queue.Lanes(ctx, lanes)
	for i := range found {
		found[i].Gate = views[found[i].Lane]
	}
	return found, err
}
