// Package queue is the hot table: all work that is not finished, of both kinds,
// and the leases of those who work on it. It looks for work, claims it, gives it
// back and keeps the workers' leases; what a row stands for is another room's, which
// reads on from the rows that a claim has taken, in the same statement.
//
// It assumes that whoever moves a row names its fence. It fails as the database
// does: after an error of a claim nothing is known, and Return gives back what it may
// have taken. It starts no goroutine.
package queue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/pinned"
)

// Kinds of work.
const (
	Deliveries = "delivery"
	Documents  = "document" // received, for the forwarders
	Deferred   = "deferred" // documents that verifier-retry has
)

// promotePage is how many waiting rows one look makes ready.
const promotePage = 1000

// Queue is the rows of one kind.
type Queue struct {
	db   *pgxpool.Pool
	kind string

	scanReady, promote, nextDue, claim, deferred, returnRows, giveBack string
}

// New works on a migrated database.
func New(db *pgxpool.Pool, kind string) *Queue {
	q := &Queue{db: db, kind: kind}
	q.scanReady, q.promote, q.nextDue = q.of(scanReady), q.of(promote), q.of(nextDue)
	q.claim, q.deferred, q.returnRows, q.giveBack = q.of(claimStatement()), q.of(deferredHead), q.of(returnRows), q.of(giveBack)
	return q
}

// of writes a statement for this kind.
func (q *Queue) of(sql string) string {
	return strings.ReplaceAll(sql, "'"+Deliveries+"'", "'"+q.kind+"'")
}

// Claiming and Deferring give the statements that take rows, with what reads on from
// taken (id, lane, tenant, class, fence, version, claimed_at, due_at, ordering_key,
// expires_at, expired).
func (q *Queue) Claiming(readOn string) string { return q.claim + readOn }

// Deferring is Claiming for Overdue.
func (q *Queue) Deferring(readOn string) string { return q.deferred + readOn }

// Look promotes waiting rows whose time has come and lists groups with ready work
// after the given one, and the lanes among them that wait to be probed.
func (q *Queue) Look(ctx context.Context, after claim.Group, limit int) (glance claim.Glance, probe []int32, err error) {
	glance.NextDue = -1
	p := pinned.New()
	p.Query(q.promote, func(rows pgx.Rows) error {
		var g claim.Group
		err := rows.Scan(&g.Lane, &g.Tenant, &g.Class)
		glance.Promoted = append(glance.Promoted, g)
		return err
	}, promotePage)
	p.Query(q.nextDue, func(rows pgx.Rows) error {
		var seconds float64
		err := rows.Scan(&seconds)
		glance.NextDue = max(0, time.Duration(seconds*float64(time.Second)))
		return err
	})
	p.Query(q.scanReady, func(rows pgx.Rows) error {
		var f claim.Found
		var reopens *float64
		var waits bool
		err := rows.Scan(&f.Lane, &f.Tenant, &f.Class, &f.Shut, &reopens, &waits)
		if f.Shut && reopens != nil {
			f.Reopens = max(time.Duration(*reopens*float64(time.Second)), time.Millisecond)
			if glance.NextDue < 0 || f.Reopens < glance.NextDue {
				glance.NextDue = f.Reopens
			}
		}
		if waits && !f.Shut && !slices.Contains(probe, f.Lane) {
			probe = append(probe, f.Lane)
		}
		glance.Found = append(glance.Found, f)
		return err
	}, after.Lane, after.Tenant, after.Class, limit)
	if err := p.Run(ctx, q.db); err != nil {
		return claim.Glance{NextDue: -1}, nil, fmt.Errorf("look for work: %w", err)
	}
	return glance, probe, nil
}

// Claim takes the rows of the given turns under the worker's lease. sql comes from
// Claiming, and scan reads one of its rows. It answers with the lanes as they are
// after it.
func (q *Queue) Claim(ctx context.Context, worker uuid.UUID, turns []claim.Turn, sql string, scan func(pgx.Rows) error) (map[int32]lane.View, []claim.Full, error) {
	n := len(turns)
	lanes, tenants, classes := make([]int32, n), make([]string, n), make([]int16, n)
	marks, counts := make([]time.Time, n), make([]int32, n)
	for i, t := range turns {
		lanes[i], tenants[i], classes[i], marks[i], counts[i] = t.Lane, t.Tenant, t.Class, t.Mark, int32(t.N)
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(lanes)))
	var full []claim.Full
	views := make(map[int32]lane.View, len(distinct))
	p := pinned.New()
	p.Exec(lockGates, distinct)
	p.Query(sql, scan, [16]byte(worker), lanes, tenants, classes, marks, counts)
	p.Query(gates, func(rows pgx.Rows) error {
		v, wait, err := lane.Scan(rows)
		views[v.ID] = v
		if wait == nil || *wait > 0 {
			f := claim.Full{Lane: v.ID}
			if wait != nil {
				f.Wait = max(time.Duration(*wait*float64(time.Second)), time.Millisecond)
			}
			full = append(full, f)
		}
		return err
	}, distinct)
	if err := p.Run(ctx, q.db); err != nil {
		return nil, nil, fmt.Errorf("claim: %w", err)
	}
	return views, full, nil
}

// Overdue leases to the worker up to limit rows that wait for an open breaker and
// are older than the given age. sql comes from Deferring.
func (q *Queue) Overdue(ctx context.Context, worker uuid.UUID, age time.Duration, limit int, sql string, scan func(pgx.Rows) error) error {
	p := pinned.New()
	p.Query(sql, scan, [16]byte(worker), age.Seconds(), limit)
	if err := p.Run(ctx, q.db); err != nil {
		return fmt.Errorf("claim what has waited too long for a breaker: %w", err)
	}
	return nil
}

// Lanes reads lanes as they are.
func (q *Queue) Lanes(ctx context.Context, ids []int32) (map[int32]lane.View, error) {
	views := make(map[int32]lane.View, len(ids))
	if len(ids) == 0 {
		return views, nil
	}
	p := pinned.New()
	p.Query(gates, func(rows pgx.Rows) error {
		v, _, err := lane.Scan(rows)
		views[v.ID] = v
		return err
	}, ids)
	if err := p.Run(ctx, q.db); err != nil {
		return nil, fmt.Errorf("look at lanes: %w", err)
	}
	return views, nil
}

// Return gives back, unused, what the worker was leased after the given moment
// except the given claims.
func (q *Queue) Return(ctx context.Context, worker uuid.UUID, after time.Time, except []claim.Known) error {
	ids, since := make([][16]byte, len(except)), make([]time.Time, len(except))
	for i, k := range except {
		ids[i], since[i] = k.Key, k.Since
	}
	p := pinned.New()
	p.Exec(q.returnRows, [16]byte(worker), ids, after, since)
	if err := p.Run(ctx, q.db); err != nil {
		return fmt.Errorf("return what worker %s does not know of: %w", worker, err)
	}
	return nil
}

// Unused is a row whose attempt never began.
type Unused struct {
	ID     [16]byte
	Fence  int32
	Worker uuid.UUID
	Delay  time.Duration
}

// GiveBack returns rows whose attempt never began: nothing is counted.
func (q *Queue) GiveBack(ctx context.Context, rows []Unused) error {
	ids, fences, workers, delays := make([][16]byte, len(rows)), make([]int32, len(rows)), make([][16]byte, len(rows)), make([]float64, len(rows))
	for i, r := range rows {
		ids[i], fences[i], workers[i], delays[i] = r.ID, r.Fence, r.Worker, r.Delay.Seconds()
	}
	err := pinned.Insist(ctx, q.db, func(p *pinned.Pipeline) { p.Exec(q.giveBack, ids, fences, workers, delays) })
	if err != nil {
		return fmt.Errorf("give back %d rows: %w", len(rows), err)
	}
	return nil
}
