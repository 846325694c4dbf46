package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// snapshotRate is the rate of a burn-down some time after its start, with or
// without another session that has held a snapshot all the while.
func (s *servers) snapshotRate(ctx context.Context, p Plan, held bool) (rate float64, err error) {
	template, err := s.loaded(ctx, p.SnapshotRows)
	if err != nil {
		return 0, err
	}
	err = s.on(ctx, ground{template: template}, func(ctx context.Context, at *site) error {
		if held {
			letGo, err := at.hold(ctx)
			if err != nil {
				return err
			}
			defer letGo()
		}
		out := noop(p.SnapshotRows)
		return at.sending(ctx, out, func(ctx context.Context) (err error) {
			rate, err = out.lateRate(ctx, p.Snapshot, p.SnapshotWindow)
			return err
		})
	})
	return rate, err
}

// hold opens a transaction that sees the database as it is now, as a backup or a
// forgotten console would.
func (at *site) hold(ctx context.Context) (letGo func(), err error) {
	conn, err := pgx.Connect(ctx, at.url)
	if err != nil {
		return nil, fmt.Errorf("hold a snapshot: %w", err)
	}
	letGo = func() { _ = conn.Close(context.WithoutCancel(ctx)) }
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT count(*) FROM lane"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			letGo()
			return nil, fmt.Errorf("hold a snapshot: %w", err)
		}
	}
	return letGo, nil
}

// lateRate samples the count and returns the rate over the last window before
// the given time, or before the end of the work where that comes sooner.
func (w *way) lateRate(ctx context.Context, after, window time.Duration) (float64, error) {
	type sample struct {
		at time.Time
		n  int64
	}
	began := time.Now()
	samples := []sample{{began, 0}}
	tick := time.NewTicker(max(window/40, time.Millisecond))
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-w.full:
			over = true
		case <-tick.C:
			over = time.Since(began) >= after
		}
		samples = append(samples, sample{time.Now(), w.count.Load()})
	}
	last := samples[len(samples)-1]
	first := samples[0]
	for _, s := range samples {
		if last.at.Sub(s.at) >= window {
			first = s
		}
	}
	return float64(last.n-first.n) / last.at.Sub(first.at).Seconds(), nil
}
