package breaker

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// maxEntries bounds the registry; idle is how long an unused closed entry stays
// when it is full.
const (
	maxEntries = 10_000
	idle       = 10 * time.Minute
)

// Set is the breakers of one instance, by the key of the lane.
type Set struct {
	settings Settings
	store    Store
	changed  func(context.Context, Change)
	now      func() time.Time
	most     int

	mu      sync.Mutex
	entries map[string]*entry
}

// entry is one destination as this instance knows it.
type entry struct {
	count    *counter
	known    Gate      // the newest version seen
	shut     time.Time // rejects until then, whatever an older claim says; zero: does not
	unsaved  *Trip     // a trip that the store did not take
	failures int       // in a row or in the window, for the message
	used     time.Time
}

// New makes an empty registry. changed is told of each change of state that this
// instance made, from the goroutine that made it.
func New(s Settings, store Store, changed func(context.Context, Change)) *Set {
	return &Set{settings: s, store: store, changed: changed, now: time.Now, most: maxEntries, entries: make(map[string]*entry)}
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
	shut := now.Before(e.shut)
	known := e.known
	if shut {
		known.State, known.Until = Open, e.shut
	}
	s.mu.Unlock()
	if !shut {
		return &Permit{set: s, gate: gate}, nil
	}
	wait := max(known.Until.Sub(now), s.settings.MinRejected)
	return nil, &Rejection{Gate: known, Message: Message(known, now), Delay: wait + time.Duration(rand.Float64()*float64(wait)/10)}
}

// Told passes on what another instance has made of a lane.
func (s *Set) Told(gate Gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.entries[gate.Key]; ok {
		e.hear(gate)
	}
}

// Reset forgets a destination: the next call begins with the settings of the day.
func (s *Set) Reset(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, key)
}

// hear takes in a view of the lane that is newer than what is known.
func (e *entry) hear(g Gate) {
	if g.Version < e.known.Version || g.Version == e.known.Version && e.known.State != "" {
		return
	}
	if g.State != Open {
		e.shut, e.unsaved = time.Time{}, nil
		if e.known.State != "" && e.known.State != Closed || g.State != Closed {
			e.count.forget() // what was counted before the outage says nothing now
		}
	} else {
		e.shut = g.Until
	}
	e.known = g
}

// entry finds or makes one; call it under mu.
func (s *Set) entry(key string, now time.Time) *entry {
	e, ok := s.entries[key]
	if !ok {
		if len(s.entries) >= s.most {
			s.evict(now)
		}
		e = &entry{count: newCounter(s.settings)}
		s.entries[key] = e
	}
	e.used = now
	return e
}

// evict makes room: what is idle goes first, then the tenth that was used longest
// ago. What is open, or has a trip to tell, stays.
func (s *Set) evict(now time.Time) {
	type aged struct {
		key  string
		used time.Time
	}
	var can []aged
	for key, e := range s.entries {
		if e.unsaved == nil && !now.Before(e.shut) && (e.known.State == Closed || e.known.State == "") {
			can = append(can, aged{key, e.used})
		}
	}
	slices.SortFunc(can, func(a, b aged) int { return cmp.Compare(a.used.UnixNano(), b.used.UnixNano()) })
	for i, c := range can {
		if i > len(can)/10 && now.Sub(c.used) < idle {
			break
		}
		delete(s.entries, c.key)
	}
}

// Known is a destination as this instance sees it.
type Known struct {
	Gate     Gate
	Failures int  // counted here while closed
	Unsaved  bool // it has tripped here and could not say so
}

// List shows the registry, by key.
func (s *Set) List() []Known {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Known, 0, len(s.entries))
	for key, e := range s.entries {
		k := Known{Gate: e.known, Failures: e.failures, Unsaved: e.unsaved != nil}
		k.Gate.Key = key
		if s.now().Before(e.shut) {
			k.Gate.State, k.Gate.Until = Open, e.shut
		}
		list = append(list, k)
	}
	slices.SortFunc(list, func(a, b Known) int { return cmp.Compare(a.Gate.Key, b.Gate.Key) })
	return list
}

// record counts a result of a closed lane; the trip, when it was one too many.
func (s *Set) record(gate Gate, r Result, cause string) *Trip {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(gate.Key, now)
	if now.Before(e.shut) && e.unsaved == nil || gate.Version < e.known.Version && e.known.State != Closed {
		return nil // it is open already: what was on its way says nothing new
	}
	parked := r == Refusal && s.settings.OnAuth == "park"
	var tripped bool
	switch {
	case r == Success || r == Throttle:
		e.failures = 0
		e.count.add(true)
	case parked:
		e.failures, tripped = e.failures+1, true
	default:
		e.failures++
		tripped = e.count.add(false)
	}
	if e.unsaved != nil && r != Success && r != Throttle {
		tripped = true
	}
	if !tripped {
		return nil
	}
	t := Trip{Gate: gate, Failures: e.failures, Cause: bound(cause), For: s.settings.OpenFor, Probes: s.settings.Probes, Parked: parked}
	e.shut, e.unsaved = now.Add(s.settings.OpenFor), &t
	e.known.Key, e.known.OpenedAt, e.known.Failures, e.known.Cause = gate.Key, now, t.Failures, t.Cause
	e.count.forget()
	return &t
}

// save opens the lane's row. What can not be saved stays: see record.
func (s *Set) save(ctx context.Context, t Trip) error {
	was := t.Gate
	now, changed, err := s.store.Open(ctx, t)
	if err != nil {
		return err
	}
	s.settle(now)
	if changed {
		s.changed(ctx, Change{From: was, To: now, Message: Message(now, s.now())})
	}
	return nil
}

// settle takes in what the store has answered.
func (s *Set) settle(now Gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entry(now.Key, s.now())
	e.unsaved, e.failures = nil, 0
	e.hear(now)
	if now.State == Open {
		e.shut = now.Until
	} else {
		e.shut = time.Time{}
	}
}

// Flush saves what could not be saved before.
func (s *Set) Flush(ctx context.Context) error {
	s.mu.Lock()
	var open []Trip
	for _, e := range s.entries {
		if e.unsaved != nil {
			open = append(open, *e.unsaved)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, t := range open {
		errs = append(errs, s.save(ctx, t))
	}
	return errors.Join(errs...)
}

// counter is the failures of one destination while it is closed: gobreaker's window
// in time, and our own in sends, which it has none of.
type counter struct {
	s    Settings
	cb   *gobreaker.TwoStepCircuitBreaker[any]
	ring []bool // the last sends, true: failed
	next int
	full bool
}

func newCounter(s Settings) *counter {
	c := &counter{s: s}
	c.forget()
	return c
}

// forget begins anew.
func (c *counter) forget() {
	c.ring, c.next, c.full = nil, 0, false
	if c.s.Executions > 0 && c.s.Period == 0 {
		c.ring = make([]bool, c.s.Executions)
	}
	settings := gobreaker.Settings{ReadyToTrip: c.ready, Timeout: 365 * 24 * time.Hour}
	if c.s.Period > 0 {
		settings.Interval, settings.BucketPeriod = c.s.Period, max(c.s.Period/10, time.Millisecond)
	}
	c.cb = gobreaker.NewTwoStepCircuitBreaker[any](settings)
}

// errFailed is what the library is told of a failure.
var errFailed = errors.New("failed")

// add counts one result now, and tells whether it was one too many.
func (c *counter) add(success bool) (tripped bool) {
	if c.ring != nil {
		c.ring[c.next] = !success
		if c.next++; c.next == len(c.ring) {
			c.next, c.full = 0, true
		}
	}
	done, err := c.cb.Allow()
	if err != nil {
		return true
	}
	if success {
		done(nil)
		return false
	}
	done(errFailed)
	return c.cb.State() == gobreaker.StateOpen
}

// ready is asked by the library after each failure, under its lock.
func (c *counter) ready(n gobreaker.Counts) bool {
	switch {
	case c.s.Rate > 0:
		return int(n.Requests) >= c.s.Executions && int(n.TotalFailures)*100 >= c.s.Rate*int(n.Requests)
	case c.s.Period > 0:
		return int(n.Requests) >= c.s.Executions && int(n.TotalFailures) >= c.s.Threshold
	case c.ring != nil:
		failed := 0
		for _, f := range c.ring {
			if f {
				failed++
			}
		}
		return failed >= c.s.Threshold
	}
	return int(n.ConsecutiveFailures) >= c.s.Threshold
}
