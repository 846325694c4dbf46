package claim

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// ErrLeaseShort says that too little of the lease is left to begin what cannot
// be taken back.
var ErrLeaseShort = errors.New("too little of the lease is left")

// Lease is a worker's own view of how long it may go on. It is measured on the
// monotonic clock from before the renewal was sent, so it ends no later than
// the database's.
type Lease struct {
	Worker uuid.UUID
	until  atomic.Pointer[time.Time]
}

func newLease(worker uuid.UUID, asked time.Time, term time.Duration) *Lease {
	l := &Lease{Worker: worker}
	l.extend(asked, term)
	return l
}

func (l *Lease) extend(asked time.Time, term time.Duration) {
	until := asked.Add(term)
	l.until.Store(&until)
}

// Left is how much of the lease remains; negative once it has lapsed.
func (l *Lease) Left() time.Duration { return time.Until(*l.until.Load()) }

// Proceed allows the irreversible step, or says why not. At least a tenth of a
// second must be left; a longer step is covered by the heartbeat.
func (l *Lease) Proceed() error {
	if l.Left() < 100*time.Millisecond {
		return ErrLeaseShort
	}
	return nil
}
