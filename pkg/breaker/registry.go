package breaker

import (
	"cmp"
	"slices"
	"time"
)

// maxEntries bounds the registry; idle is how long an unused entry stays when it is
// full.
const (
	maxEntries = 10_000
	idle       = 10 * time.Minute
)

// entry is one destination as this instance knows it.
type entry struct {
	count  *counter
	known  Gate      // the newest version seen
	shut   time.Time // rejects until then, whatever an older claim says; zero: does not
	trip   *Trip     // of this instance, that the store has not taken; nil: none
	at     time.Time // of that trip
	saving bool      // somebody is telling the store
	used   time.Time
}

// gate is the destination as this instance sees it now.
func (e *entry) gate(key string, now time.Time) Gate {
	g := e.known
	g.Key = key
	if now.Before(e.shut) {
		g.State, g.Until = Open, e.shut
		if e.trip != nil {
			g.OpenedAt, g.Failures, g.Cause, g.Forced = e.at, e.trip.Failures, e.trip.Cause, false
		}
	}
	return g
}

// hear takes in a view of the lane that is newer than what is known.
func (e *entry) hear(g Gate) {
	if e.known.State != "" && g.Version <= e.known.Version {
		return
	}
	was := e.known.State
	e.known = g
	switch {
	case g.State == Open:
		e.shut, e.trip = g.Until, nil
	case g.State == HalfOpen || was == Open || was == HalfOpen:
		e.shut, e.trip = time.Time{}, nil
		e.count.forget() // what was counted before the outage says nothing now
	}
	// Closed before and after: a cap has changed. It is no answer to a trip that the
	// store has not taken.
}

// settle takes in what the store has answered: that is newer than any trip of ours,
// but not than what was heard meanwhile.
func (e *entry) settle(g Gate) {
	e.trip, e.shut = nil, time.Time{}
	e.hear(g)
	if e.known.State == Open {
		e.shut = e.known.Until
	}
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

// evict makes room: what is idle goes, and the tenth that was used longest ago. What
// is open, or has a trip to tell, stays, even beyond the bound: there can be no more
// of it than the database has lanes.
func (s *Set) evict(now time.Time) {
	type aged struct {
		key  string
		used time.Time
	}
	var can []aged
	for key, e := range s.entries {
		if e.trip == nil && !now.Before(e.shut) {
			can = append(can, aged{key, e.used})
		}
	}
	slices.SortFunc(can, func(a, b aged) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.key, b.key)) })
	for i, c := range can {
		if i > len(can)/10 && now.Sub(c.used) < idle {
			break
		}
		delete(s.entries, c.key)
	}
}

// Known is a destination as this instance sees it.
type Known struct {
	Gate     Gate // of an open one: since when, until when, how many failures, the last one
	Failures int  // counted here while closed: in a row, or in the window
	Refuses  bool // calls, just now
	Unsaved  bool // it has tripped here and could not say so
}

// List shows the registry, by key.
func (s *Set) List() []Known {
	now := s.now()
	s.mu.Lock()
	list := make([]Known, 0, len(s.entries))
	for key, e := range s.entries {
		list = append(list, Known{Gate: e.gate(key, now), Failures: e.count.failed, Refuses: now.Before(e.shut), Unsaved: e.trip != nil})
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b Known) int { return cmp.Compare(a.Gate.Key, b.Gate.Key) })
	return list
}

// Reset forgets a destination: the next call begins with the settings of the day.
// The lane's row is reset by whoever owns it.
func (s *Set) Reset(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.entries, key)
}
