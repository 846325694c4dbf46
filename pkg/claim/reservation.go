package claim

import "time"

// Reservation is a number of free slots of one lane, set aside for work that is
// about to be inserted under the loop's own lease: it needs no claim, and nothing
// waits in memory for a slot. Exactly one of Start and Cancel ends it.
type Reservation[T Item] struct {
	loop   *Loop[T]
	term   *term
	lane   int32
	before time.Time // newest claim known when it was made
	N      int       // slots
}

// Reserve sets aside up to n slots of a lane. It returns nil when there are none,
// or when older work of that lane is known to wait: that goes first.
func (l *Loop[T]) Reserve(lane int32, n int) *Reservation[T] {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.term
	if t == nil || l.turns.Knows(lane) || t.lease.Left() < l.cfg.Term/3 || !l.doubt.until.IsZero() {
		return nil
	}
	n = min(n, l.room(lane), l.cfg.Slots-len(l.inFlight)-l.reserved)
	if n <= 0 {
		return nil
	}
	l.reserved += n
	l.lanes[lane] += n
	t.work.Add(1) // the term waits for the end of the reservation
	return &Reservation[T]{loop: l, term: t, lane: lane, before: l.newest, N: n}
}

// Lease is what the inserted rows are to be leased to.
func (r *Reservation[T]) Lease() *Lease { return r.term.lease }

// Start works on the rows that were inserted under the lease, at most N, and
// frees the other slots.
func (r *Reservation[T]) Start(items []T) {
	l := r.loop
	l.mu.Lock()
	r.term.work.Add(len(items))
	for _, item := range items {
		l.start(r.term, item)
	}
	l.mu.Unlock()
	r.end()
}

// Cancel frees the slots. unsure tells that rows may have been inserted all the
// same: what the loop does not know of is then given back.
func (r *Reservation[T]) Cancel(unsure bool) {
	if unsure {
		r.loop.suspect(r.before)
	}
	r.end()
}

func (r *Reservation[T]) end() {
	l := r.loop
	l.mu.Lock()
	l.reserved -= r.N
	l.leave(r.lane, r.N)
	l.mu.Unlock()
	r.term.work.Done()
	l.poke()
}
