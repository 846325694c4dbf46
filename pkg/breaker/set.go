package breaker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// maxJitter bounds what is added to the wait of a rejected call, a tenth of it.
const maxJitter = time.Minute

// Set is the breakers of one instance, by the key of the lane.
type Set struct {
	settings Settings
	store    Store
	changed  func(context.Context, Change)
	now      func() time.Time
	jitter   func() float64 // from 0 to below 1
	most     int

	mu      sync.Mutex
	entries map[string]*entry
}

// New makes an empty registry. changed is told of each change of state that this
// instance made, from the goroutine that made it and outside of any lock.
func New(s Settings, store Store, changed func(context.Context, Change)) *Set {
	return &Set{settings: s, store: store, changed: changed, now: time.Now, jitter: rand.Float64, most: maxEntries, entries: make(map[string]*entry)}
}

// Rejection says that a call must not be made.
type Rejection struct {
	Gate    Gate
	Message string
	Delay   time.Duration // the least wait: what is left of the open time, at least the interval of the scheduler, plus jitter
}

// Error is the message of the seed.
func (r *Rejection) Error() string { return r.Message }

// Acquire asks for a permit for something that was claimed when its lane looked like
// gate. It is refused when this instance knows better by now. Whoever has a permit
// must call Done; Close in a defer makes sure.
func (s *Set) Acquire(gate Gate) (*Permit, *Rejection) {
	now := s.now()
	s.mu.Lock()
	e := s.entry(gate.Key, now)
	e.hear(gate)
	shut, known := now.Before(e.shut), e.gate(gate.Key, now)
	s.mu.Unlock()
	if !shut {
		return &Permit{set: s, gate: gate}, nil
	}
	wait := max(known.Until.Sub(now), s.settings.MinRejected)
	wait += time.Duration(s.jitter() * float64(min(wait/10, maxJitter)))
	return nil, &Rejection{Gate: known, Message: Message(known, now), Delay: wait}
}

// Told passes on what another instance has made of a lane. Older news than what is
// known change nothing, and a destination that nobody here uses is not taken in.
func (s *Set) Told(gate Gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[gate.Key]; ok {
		e.hear(gate)
	}
}

// record counts a result of a closed lane. It gives the trip to store, when the
// result was one too many and nobody is storing it already.
func (s *Set) record(gate Gate, r Result, cause string) *Trip {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(gate.Key, now)
	e.hear(gate)
	shut := now.Before(e.shut)
	if gate.Version < e.known.Version && e.known.State != Closed {
		return nil // it has opened since: what was on its way says nothing new
	}
	if r == Success || r == Throttle {
		if !shut {
			e.trip = nil // it has recovered before anybody else heard of it
		}
		if e.trip == nil {
			e.count.add(true)
		}
		return nil
	}
	parks := s.settings.parks(r)
	switch {
	case e.saving:
		return nil
	case e.trip != nil: // it failed again, and the store does not know of the first time
		e.trip.Failures++
		e.trip.Cause, e.trip.Parked = bound(cause), parks
	case e.count.add(false) || parks:
		e.trip, e.at = &Trip{Gate: gate, Failures: e.count.failed, Cause: bound(cause), For: s.settings.OpenFor, Probes: s.settings.Probes, Parked: parks}, now
		e.count.forget()
	default:
		return nil
	}
	if !shut {
		e.shut = now.Add(s.settings.OpenFor)
	}
	e.saving = true
	t := *e.trip
	return &t
}

// save opens the lane's row. What can not be saved stays: see record and Flush.
func (s *Set) save(ctx context.Context, t Trip) error {
	defer s.saved(t.Gate.Key)
	now, changed, err := s.store.Open(ctx, t)
	if err != nil {
		return fmt.Errorf("open the lane of %s: %w", t.Gate.Key, err)
	}
	s.settle(now)
	if changed {
		s.changed(ctx, Change{From: t.Gate, To: now, Message: Message(now, s.now())})
	}
	return nil
}

func (s *Set) saved(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[key]; ok {
		e.saving = false
	}
}

func (s *Set) settle(now Gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.entry(now.Key, s.now()).settle(now)
}

// Flush saves what could not be saved before and whose time is not over, for the
// rest of it. Call it when no permit is out any more, or at any time in between.
func (s *Set) Flush(ctx context.Context) error {
	now := s.now()
	var trips []Trip
	s.mu.Lock()
	for _, e := range s.entries {
		if left := e.shut.Sub(now); e.trip != nil && !e.saving && left > 0 {
			e.saving = true
			t := *e.trip
			t.For = left
			trips = append(trips, t)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, t := range trips {
		errs = append(errs, s.save(ctx, t))
	}
	return errors.Join(errs...)
}
