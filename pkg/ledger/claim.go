package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/transport"
)

// Claimed is one delivery under a lease: all that an attempt needs, read in the
// statement that took it.
type Claimed struct {
	ID         delivery.ID
	Lane       int32
	Tenant     string
	Class      delivery.Class
	Worker     uuid.UUID
	Fence      int32
	Version    int32
	ClaimedAt  time.Time // the database's clock
	DueAt      time.Time
	Expired    bool
	ExpiresAt  *time.Time
	Channel    delivery.Channel
	RequestID  string
	State      delivery.State // pending or retry
	Attempts   int
	Retries    int
	IsPrepared bool
	Custom     json.RawMessage
	Trace      string
	Request    []byte // only when not prepared
	Prepared   []byte
	Recipients []transport.Recipient // those still waiting
	Accepted   int                   // recipients that earlier attempts brought home
	Ordering   string
	Gate       lane.View // of its lane, as the claim found it
}

// Key names it in the queue.
func (c Claimed) Key() [16]byte { return c.ID }

// Group is where the claim found it.
func (c Claimed) Group() claim.Group {
	return claim.Group{Lane: c.Lane, Tenant: c.Tenant, Class: int16(c.Class)}
}

// Due is since when it was ready, for the low-water mark.
func (c Claimed) Due() time.Time { return c.DueAt }

// Since is when it was claimed.
func (c Claimed) Since() time.Time { return c.ClaimedAt }

// promotePage is how many waiting rows one look makes ready.
const promotePage = 1000

// Deliveries is the ledger as the source of work that package claim takes from.
type Deliveries struct {
	*Ledger
	// HalfOpen is called for a lane that was shut by its breaker and may be probed
	// now; it returns once that is written. Nil: such lanes stay shut.
	HalfOpen func(ctx context.Context, lane int32) error
}

// Look promotes waiting rows whose time has come and lists groups with ready
// work after the given one.
func (l Deliveries) Look(ctx context.Context, after claim.Group, limit int) (claim.Glance, error) {
	glance := claim.Glance{NextDue: -1}
	p := newPipeline()
	p.query(promote, func(rows pgx.Rows) error {
		var g claim.Group
		err := rows.Scan(&g.Lane, &g.Tenant, &g.Class)
		glance.Promoted = append(glance.Promoted, g)
		return err
	}, promotePage)
	p.query(nextDue, func(rows pgx.Rows) error {
		var seconds float64
		err := rows.Scan(&seconds)
		glance.NextDue = max(0, time.Duration(seconds*float64(time.Second)))
		return err
	})
	probe := make(map[int32]bool)
	p.query(scanReady, func(rows pgx.Rows) error {
		var f claim.Found
		var reopens *float64
		var probed bool
		err := rows.Scan(&f.Lane, &f.Tenant, &f.Class, &f.Shut, &reopens, &probed)
		if f.Shut && reopens != nil {
			f.Reopens = max(time.Duration(*reopens*float64(time.Second)), time.Millisecond)
			if glance.NextDue < 0 || f.Reopens < glance.NextDue {
				glance.NextDue = f.Reopens
			}
		}
		if probed && !f.Shut {
			probe[f.Lane] = true
		}
		glance.Found = append(glance.Found, f)
		return err
	}, after.Lane, after.Tenant, after.Class, limit)
	if err := l.run(ctx, p); err != nil {
		return claim.Glance{}, fmt.Errorf("look for work: %w", err)
	}
	for id := range probe {
		if l.HalfOpen != nil {
			if err := l.HalfOpen(ctx, id); err != nil {
				return claim.Glance{}, err
			}
		}
	}
	return glance, nil
}

// Claim takes the rows of the given turns under the worker's lease.
func (l Deliveries) Claim(ctx context.Context, worker uuid.UUID, turns []claim.Turn) ([]Claimed, []claim.Full, error) {
	n := len(turns)
	lanes, tenants, classes := make([]int32, n), make([]string, n), make([]int16, n)
	marks, counts := make([]time.Time, n), make([]int32, n)
	total := 0
	for i, t := range turns {
		lanes[i], tenants[i], classes[i], marks[i], counts[i] = t.Lane, t.Tenant, t.Class, t.Mark, int32(t.N)
		total += t.N
	}
	taken := make([]Claimed, 0, total)
	distinct := slices.Compact(slices.Sorted(slices.Values(lanes)))
	p := newPipeline()
	p.exec(lockGates, distinct)
	p.query(claimRows, func(rows pgx.Rows) error {
		c, err := scanClaimed(rows, nil)
		if err != nil {
			return err
		}
		c.Worker = worker
		taken = append(taken, c)
		return nil
	}, [16]byte(worker), lanes, tenants, classes, marks, counts)
	var full []claim.Full
	views := make(map[int32]lane.View, len(distinct))
	p.query(gates, func(rows pgx.Rows) error {
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
	if err := l.run(ctx, p); err != nil {
		return nil, nil, fmt.Errorf("claim: %w", err)
	}
	for i := range taken {
		taken[i].Gate = views[taken[i].Lane]
	}
	return taken, full, nil
}

// scanClaimed reads the columns that claim and stuck share, and the owner when
// the statement gives it.
func scanClaimed(rows pgx.Rows, owner *[16]byte) (Claimed, error) {
	var c Claimed
	var id [16]byte
	var ordinals []int16
	var addresses []string
	var trace, ordering *string
	var custom []byte
	into := []any{&id, &c.Lane, &c.Tenant, &c.Class, &c.Fence, &c.Version, &c.ClaimedAt, &c.DueAt, &c.Expired, &ordering,
		&c.Channel, &c.RequestID, &c.State, &c.Attempts, &c.Retries, &c.IsPrepared, &custom, &trace, &c.ExpiresAt,
		&c.Request, &c.Prepared, &ordinals, &addresses, &c.Accepted}
	if owner != nil {
		into = append(into, owner)
	}
	if err := rows.Scan(into...); err != nil {
		return c, err
	}
	c.ID, c.Custom = id, custom
	if trace != nil {
		c.Trace = *trace
	}
	if ordering != nil {
		c.Ordering = *ordering
	}
	c.Recipients = make([]transport.Recipient, len(ordinals))
	for i := range ordinals {
		c.Recipients[i] = transport.Recipient{Ordinal: int(ordinals[i]), Address: addresses[i]}
	}
	return c, nil
}

// Return gives back, unused, what the worker was leased after the given moment
// except the given keys.
func (l Deliveries) Return(ctx context.Context, worker uuid.UUID, after time.Time, except [][16]byte) error {
	p := newPipeline()
	p.exec(returnRows, [16]byte(worker), except, after)
	if err := l.run(ctx, p); err != nil {
		return fmt.Errorf("return what worker %s does not know of: %w", worker, err)
	}
	return nil
}

// Join registers a worker under a fresh id with a lease of the given term.
func (l *Ledger) Join(ctx context.Context, instance string, term time.Duration) (uuid.UUID, error) {
	id := newBatchID()
	if _, err := l.db.Exec(ctx, insertWorker, [16]byte(id), instance, term.Seconds()); err != nil {
		return uuid.Nil, fmt.Errorf("join as worker %s: %w", instance, err)
	}
	return id, nil
}

// Renew extends a worker's lease. It returns claim.ErrLapsed when there was none left to
// extend: the worker must stop and come back under a new id.
func (l *Ledger) Renew(ctx context.Context, worker uuid.UUID, term time.Duration) error {
	tag, err := l.db.Exec(ctx, renewWorker, [16]byte(worker), term.Seconds())
	if err != nil {
		return fmt.Errorf("renew lease of worker %s: %w", worker, err)
	}
	if tag.RowsAffected() == 0 {
		return claim.ErrLapsed
	}
	return nil
}

// Leave ends a worker that owns nothing any more; if it still does, its lease
// runs out and the sweep takes over.
func (l *Ledger) Leave(ctx context.Context, worker uuid.UUID) error {
	p := newPipeline()
	p.exec(deleteWorker, [16]byte(worker))
	if err := l.run(ctx, p); err != nil {
		return fmt.Errorf("leave as worker %s: %w", worker, err)
	}
	return nil
}

// Lane returns the id of the lane with this key and makes it when there is none.
func (l *Ledger) Lane(ctx context.Context, key, kind string) (int32, error) {
	return lane.ID(ctx, l.db, key, kind)
}
