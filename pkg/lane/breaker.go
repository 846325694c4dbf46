package lane

import (
	"context"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Trip is what an instance knows when a lane's breaker opens.
type Trip struct {
	Failures int
	Cause    string        // the last failure, bounded
	For      time.Duration // how long it stays open
	Probes   int           // sends that may probe it then
	Parked   bool          // since the credentials are refused, not since it is down
	Text     string        // for a person
}

// Open opens a closed lane. False: it was open already; the view says how.
func (l *Lanes) Open(ctx context.Context, id int32, t Trip) (View, bool, error) {
	return l.change(ctx, "open", id, func(v View) *delivery.LaneEvent {
		e := event(v, delivery.LaneOpen, t.Text)
		if t.Parked {
			e.State = delivery.LaneParked
		}
		return e
	}, trip, t.For.Seconds(), t.Failures, delivery.Bound(t.Cause), max(t.Probes, 1))
}

// HalfOpen lets probes through a lane whose time is over.
func (l *Lanes) HalfOpen(ctx context.Context, id int32) (View, bool, error) {
	return l.change(ctx, "half-open", id, func(v View) *delivery.LaneEvent {
		return event(v, delivery.LaneHalfOpen, "its time is over: a few sends probe it")
	}, halfOpen)
}

// Probed books the result of a probe that was claimed when the lane had this
// version. text is for a person, should it open again.
func (l *Lanes) Probed(ctx context.Context, id, version int32, success bool, t Trip) (View, bool, error) {
	if success {
		return l.change(ctx, "probe", id, func(v View) *delivery.LaneEvent {
			if v.Breaker != Closed {
				return nil
			}
			return event(v, delivery.LaneClosed, "the probe succeeded; what has waited is released slowly")
		}, probeSucceeded, version)
	}
	return l.change(ctx, "probe", id, func(v View) *delivery.LaneEvent { return event(v, delivery.LaneOpen, t.Text) },
		probeFailed, version, t.For.Seconds(), delivery.Bound(t.Cause))
}

// event tells of a lane as it is now.
func event(v View, state delivery.LaneState, text string) *delivery.LaneEvent {
	e := &delivery.LaneEvent{State: state, Cause: v.Cause, Text: text, Cap: v.Cap, RateCap: v.RateCap}
	if !v.ShutUntil.IsZero() {
		e.Until = &v.ShutUntil
	}
	return e
}
