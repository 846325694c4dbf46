package claim

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Group is the unit of turn-taking: rows of one lane, tenant and class are
// served in the order in which they became ready.
type Group struct {
	Lane   int32
	Tenant string
	Class  int16 // 0 first; 2 is bulk
}

// Bell is the payload of a doorbell: groups that have new ready work, and who
// rings, so that it need not listen to itself. One without groups has everybody look
// at the queue.
type Bell struct {
	From   string  `json:"from"`
	Groups []Group `json:"groups"`
	Forget string  `json:"forget,omitempty"` // key of a lane whose breaker was reset
}

// Found is a group with ready work. Shut: its lane or its tenant takes nothing
// just now.
type Found struct {
	Group
	Shut    bool
	Reopens time.Duration // of one that is shut; 0: no end is known
}

// Full is a lane of which a claim took less than there was, since its limits
// allow no more just now.
type Full struct {
	Lane int32
	Wait time.Duration // until its limits allow the next; 0: when something in work there ends
}

// Turn asks for up to N rows of a group, from the low-water mark on.
type Turn struct {
	Group
	Mark time.Time
	N    int
	seen uint64 // how often the group had been announced when the turn was made
}

// Item is one piece of work under a lease.
type Item interface {
	Key() [16]byte
	Group() Group
	Due() time.Time   // since when it was ready
	Since() time.Time // since when it is leased, by the database's clock
}

// Known is one claim that a worker knows of: the same item claimed again is another.
type Known struct {
	Key   [16]byte
	Since time.Time
}

// ErrLapsed says that a worker's lease had run out before it was renewed.
var ErrLapsed = errors.New("the worker's lease has lapsed")

// Glance is what one look at the queue shows.
type Glance struct {
	Found    []Found       // groups with ready work after the cursor, in order
	Promoted []Group       // groups in which waiting rows have just become ready
	NextDue  time.Duration // until the earliest waiting row is due or a shut group opens; negative: none
}

// Source is the queue as the loop sees it.
type Source[T Item] interface {
	// Look promotes what has become due and lists at most limit groups after the cursor.
	Look(ctx context.Context, after Group, limit int) (Glance, error)
	// Claim leases rows to the worker, at most N of each turn, and names the lanes among them that are full now.
	Claim(ctx context.Context, worker uuid.UUID, turns []Turn) ([]T, []Full, error)
	// Return gives back, unused, what the worker was leased after the given moment of the database's clock (zero:
	// ever), except the given claims: after a claim whose answer was lost.
	Return(ctx context.Context, worker uuid.UUID, after time.Time, except []Known) error
	// Join, Renew and Leave keep the worker's lease. Renew returns ErrLapsed when it was too late.
	Join(ctx context.Context, instance string, term time.Duration) (uuid.UUID, error)
	Renew(ctx context.Context, worker uuid.UUID, term time.Duration) error
	Leave(ctx context.Context, worker uuid.UUID) error
}
