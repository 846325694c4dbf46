package quota

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/audit"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Quotas is what operators do with quotas.
type Quotas struct {
	db  *pgxpool.Pool
	cfg Config
}

// New works on a migrated database.
func New(db *pgxpool.Pool, cfg Config) *Quotas { return &Quotas{db: db, cfg: cfg} }

// Put sets or removes a quota, has its warnings given anew, and lets what waited
// for it try again. It works at once.
func (q *Quotas) Put(ctx context.Context, c delivery.QuotaCommand) error {
	action, target := "quota.set", c.Bucket+" "+c.Channel
	if b := q.cfg.Bucket(c.Bucket); b != c.Bucket {
		return fmt.Errorf("%s draws on the quota of %s (QUOTA_PLATFORM_TENANTS): set that", c.Bucket, b)
	}
	zone := cmp.Or(c.Zone, q.cfg.Zone, "UTC")
	hold := "fail"
	if c.Hold {
		hold = "hold"
	}
	result := "no limit of its own"
	if c.Monthly != nil {
		result = fmt.Sprintf("%d a month, then %s", *c.Monthly, hold)
	}
	err := pgx.BeginFunc(ctx, q.db, func(tx pgx.Tx) error {
		var err error
		if c.Remove {
			action, result = "quota.remove", "removed"
			_, err = tx.Exec(ctx, remove, c.Bucket, c.Channel)
		} else {
			_, err = tx.Exec(ctx, put, c.Bucket, c.Channel, c.Monthly, hold, zone)
		}
		if err != nil {
			return err
		}
		var b pgx.Batch
		b.Queue(rearm, c.Bucket, c.Channel)
		b.Queue(release, c.Bucket)
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return err
		}
		return audit.Write(ctx, tx, c.Warrant, action, []string{target}, []string{result})
	})
	if err != nil {
		return fmt.Errorf("%s %s: %w", action, target, err)
	}
	return nil
}

// Usage lists what buckets have used of which months, newest first.
func (q *Quotas) Usage(ctx context.Context, f delivery.QuotaFilter) ([]delivery.QuotaUsage, error) {
	var month *time.Time
	if f.Month != "" {
		m, err := time.Parse("2006-01", f.Month)
		if err != nil {
			return nil, fmt.Errorf("month %.20q is not of the form 2026-11", f.Month)
		}
		month = &m
	}
	rows, err := q.db.Query(ctx, usage, f.Bucket, f.Channel, month, cmp.Or(q.cfg.Zone, "UTC"))
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (u delivery.QuotaUsage, err error) {
		var action string
		if err := row.Scan(&u.Bucket, &u.Channel, &u.Month, &u.Used, &u.Ceiling, &action, &u.Zone); err != nil {
			return u, err
		}
		u.Month, u.Hold = u.Month[:7], action == "hold"
		if u.Ceiling == nil {
			if c := q.cfg.ceiling(delivery.Channel(u.Channel)); c >= 0 {
				u.Ceiling, u.Default = &c, true
			}
		}
		return u, nil
	})
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	return list, nil
}

// List shows the quotas that were set.
func (q *Quotas) List(ctx context.Context, f delivery.QuotaFilter) ([]delivery.MonthlyQuota, error) {
	rows, err := q.db.Query(ctx, quotas, f.Bucket, f.Channel)
	if err != nil {
		return nil, fmt.Errorf("list quotas: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r delivery.MonthlyQuota, err error) {
		var action string
		err = row.Scan(&r.Bucket, &r.Channel, &r.Monthly, &action, &r.Zone)
		r.Hold = action == "hold"
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("list quotas: %w", err)
	}
	return list, nil
}
