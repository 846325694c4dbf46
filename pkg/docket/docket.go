package docket

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/pinned"
	"github.com/posthouse-io/posthouse/pkg/queue"
)

// Keys of lanes that this room knows.
const (
	ForwarderLane = "forwarder"     // the receiver backend (seed: one breaker for the forwarding)
	DeferredLane  = "verifier"      // documents that wait for a verifier
	MLSLane       = "ap$unassigned" // answers to C2, until there is a way to send them; paused
)

// Errors of this room.
var (
	ErrNotFound = errors.New("no such document")
	ErrStale    = errors.New("somebody else has the document now")
)

// Docket writes to one database.
type Docket struct {
	db     *pgxpool.Pool
	ledger *ledger.Ledger
	policy *document.Policy
	lanes  struct{ forward, deferred, mls int32 }
	kinds  map[string]*Kind
}

// Open readies the book on a migrated database: it finds its lanes, or makes them.
// That of the answers to C2 is made paused.
func Open(ctx context.Context, db *pgxpool.Pool, book *ledger.Ledger, policy *document.Policy) (*Docket, error) {
	d := &Docket{db: db, ledger: book, policy: policy, kinds: make(map[string]*Kind)}
	for _, l := range []struct {
		id        *int32
		key, kind string
	}{{&d.lanes.forward, ForwarderLane, queue.Documents}, {&d.lanes.deferred, DeferredLane, queue.Deferred}} {
		var err error
		if *l.id, err = lane.ID(ctx, db, l.key, l.kind); err != nil {
			return nil, err
		}
	}
	var err error
	if d.lanes.mls, err = lane.Parked(ctx, db, MLSLane, queue.Deliveries, "this version cannot send AS4 messages yet"); err != nil {
		return nil, err
	}
	for _, kind := range []string{queue.Documents, queue.Deferred} {
		q := queue.New(db, kind)
		d.kinds[kind] = &Kind{Docket: d, kind: kind, queue: q, claiming: q.Claiming(taken)}
	}
	return d, nil
}

// Documents is the forwarders' work, Deferred that of verifier-retry.
func (d *Docket) Documents() *Kind { return d.kinds[queue.Documents] }

// Deferred is the documents that wait for a verifier.
func (d *Docket) Deferred() *Kind { return d.kinds[queue.Deferred] }

// ForwardLane is the id of the lane of the receiver backend.
func (d *Docket) ForwardLane() int32 { return d.lanes.forward }

// Body is the document as it was received.
func (d *Docket) Body(ctx context.Context, id delivery.ID) ([]byte, error) {
	var body []byte
	err := d.db.QueryRow(ctx, selectBody, [16]byte(id)).Scan(&body)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("body of document %s: %w", id, err)
	}
	return body, nil
}

// Kind is the docket as the source of one kind of work that package claim takes from.
type Kind struct {
	*Docket
	// HalfOpen is called for a lane whose breaker may be probed now. Nil: such lanes
	// stay shut.
	HalfOpen func(ctx context.Context, lane int32) error

	kind     string
	queue    *queue.Queue
	claiming string
}

// Look promotes waiting rows whose time has come and lists groups with ready work.
func (k *Kind) Look(ctx context.Context, after claim.Group, limit int) (claim.Glance, error) {
	glance, probe, err := k.queue.Look(ctx, after, limit)
	for _, id := range probe {
		if err == nil && k.HalfOpen != nil {
			err = k.HalfOpen(ctx, id)
		}
	}
	return glance, err
}

// Claim takes the rows of the given turns under the worker's lease.
func (k *Kind) Claim(ctx context.Context, worker uuid.UUID, turns []claim.Turn) ([]Claimed, []claim.Full, error) {
	var got []Claimed
	views, full, err := k.queue.Claim(ctx, worker, turns, k.claiming, func(rows pgx.Rows) error {
		c := Claimed{Worker: worker}
		err := scan(rows.Scan, &c)
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

// Return gives back, unused, what the worker was leased without knowing it.
func (k *Kind) Return(ctx context.Context, worker uuid.UUID, after time.Time, except []claim.Known) error {
	return k.queue.Return(ctx, worker, after, except)
}

// Join, Renew and Leave keep the worker's lease.
func (k *Kind) Join(ctx context.Context, instance string, term time.Duration) (uuid.UUID, error) {
	return k.queue.Join(ctx, instance, term)
}

// Renew extends a lease; claim.ErrLapsed when there was none left.
func (k *Kind) Renew(ctx context.Context, worker uuid.UUID, term time.Duration) error {
	return k.queue.Renew(ctx, worker, term)
}

// Leave ends a worker that owns nothing any more.
func (k *Kind) Leave(ctx context.Context, worker uuid.UUID) error { return k.queue.Leave(ctx, worker) }

// Stuck lists rows of this kind whose worker has let its lease lapse, or that are
// held longer than maxHold.
func (k *Kind) Stuck(ctx context.Context, maxHold time.Duration, limit int) ([]Claimed, error) {
	var found []Claimed
	p := pinned.New()
	p.Query(stuck, func(rows pgx.Rows) error {
		var c Claimed
		var owner [16]byte
		err := scan(rows.Scan, &c, &owner)
		c.Worker = owner
		found = append(found, c)
		return err
	}, k.kind, maxHold.Seconds(), limit)
	if err := p.Run(ctx, k.db); err != nil {
		return nil, fmt.Errorf("list stuck documents: %w", err)
	}
	return found, nil
}
