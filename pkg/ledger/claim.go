package ledger

import (
	"context"
	"encoding/json"
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
	glance, probe, err := l.queue.Look(ctx, after, limit)
	for _, id := range probe {
		if err == nil && l.HalfOpen != nil {
			err = l.HalfOpen(ctx, id)
		}
	}
	return glance, err
}

// Claim takes the rows of the given turns under the worker's lease.
func (l Deliveries) Claim(ctx context.Context, worker uuid.UUID, turns []claim.Turn) ([]Claimed, []claim.Full, error) {
	var got []Claimed
	views, full, err := l.queue.Claim(ctx, worker, turns, l.claiming, func(rows pgx.Rows) error {
		c, err := scanClaimed(rows, nil)
		c.Worker = worker
		got = append(got, c)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for i := range got {
		got[i].Gate = views[got[i].Lane]
	}
	return got, full, nil
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
// except the given claims.
func (l Deliveries) Return(ctx context.Context, worker uuid.UUID, after time.Time, except []claim.Known) error {
	return l.queue.Return(ctx, worker, after, except)
}

// Join registers a worker under a fresh id with a lease of the given term.
func (l *Ledger) Join(ctx context.Context, instance string, term time.Duration) (uuid.UUID, error) {
	return l.queue.Join(ctx, instance, term)
}

// Renew extends a worker's lease; claim.ErrLapsed when there was none left.
func (l *Ledger) Renew(ctx context.Context, worker uuid.UUID, term time.Duration) error {
	return l.queue.Renew(ctx, worker, term)
}

// Leave ends a worker that owns nothing any more.
func (l *Ledger) Leave(ctx context.Context, worker uuid.UUID) error {
	return l.queue.Leave(ctx, worker)
}

// Lane returns the id of the lane with this key and makes it when there is none.
func (l *Ledger) Lane(ctx context.Context, key, kind string) (int32, error) {
	return lane.ID(ctx, l.db, key, kind)
}
