package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/lane"
)

// Deferred leases to the worker up to limit deliveries that wait for an open breaker
// and were accepted longer ago than the given age; each comes with its lane as it
// stands. The caller settles them as attempts that failed.
func (l *Ledger) Deferred(ctx context.Context, worker uuid.UUID, age time.Duration, limit int) ([]Claimed, error) {
	var found []Claimed
	p := newPipeline()
	p.query(claimDeferred, func(rows pgx.Rows) error {
		c, err := scanClaimed(rows, nil)
		c.Worker = worker
		found = append(found, c)
		return err
	}, [16]byte(worker), age.Seconds(), limit)
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("claim what has waited too long for a breaker: %w", err)
	}
	var lanes []int32
	for _, c := range found {
		if !slices.Contains(lanes, c.Lane) {
			lanes = append(lanes, c.Lane)
		}
	}
	views := make(map[int32]lane.View, len(lanes))
	p = newPipeline()
	p.query(gates, func(rows pgx.Rows) error {
		v, _, err := lane.Scan(rows)
		views[v.ID] = v
		return err
	}, lanes)
	if len(lanes) > 0 {
		if err := l.run(ctx, p); err != nil {
			return nil, fmt.Errorf("look at open lanes: %w", err)
		}
	}
	for i := range found {
		found[i].Gate = views[found[i].Lane]
	}
	return found, nil
}
