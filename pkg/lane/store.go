package lane

import (
	"context"
	"time"

	"github.com/posthouse-io/posthouse/pkg/breaker"
)

// Store is the lanes as package breaker wants them.
type Store struct{ *Lanes }

// Open opens the lane of a trip.
func (s Store) Open(ctx context.Context, t breaker.Trip) (breaker.Gate, bool, error) {
	v, changed, err := s.Lanes.Open(ctx, t.Gate.ID, s.trip(t))
	return v.Gate(), changed, err
}

// Probed books a probe.
func (s Store) Probed(ctx context.Context, probe breaker.Gate, success bool, t breaker.Trip) (breaker.Gate, bool, error) {
	v, changed, err := s.Lanes.Probed(ctx, probe.ID, probe.Version, success, s.trip(t))
	return v.Gate(), changed, err
}

// trip adds the text of the event: the message that the row will make.
func (s Store) trip(t breaker.Trip) Trip {
	now := time.Now()
	g := t.Gate
	g.State, g.OpenedAt, g.Until, g.Cause, g.Forced = breaker.Open, now, now.Add(t.For), t.Cause, false
	if g.Failures = t.Failures; g.Failures == 0 { // a probe
		g.Failures = t.Gate.Failures + 1
	}
	return Trip{Failures: t.Failures, Cause: t.Cause, For: t.For, Probes: t.Probes, Parked: t.Parked, Text: breaker.Message(g, now)}
}
