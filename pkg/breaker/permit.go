package breaker

import (
	"context"
	"sync/atomic"
)

// Permit allows one call. It counts once, however often Done is called.
type Permit struct {
	set  *Set
	gate Gate
	used atomic.Bool
}

// Done says what the call has shown of its destination; cause is the failure, for a
// person. An error means that a change of state could not be stored; it is kept.
func (p *Permit) Done(ctx context.Context, r Result, cause string) error {
	if !p.used.CompareAndSwap(false, true) {
		return nil
	}
	s := p.set
	if r == Excluded {
		return nil
	}
	if p.gate.State == HalfOpen {
		success := r == Success || r == Throttle || r == Refusal && s.settings.OnAuth != "park"
		t := Trip{Gate: p.gate, Cause: bound(cause), For: s.settings.OpenFor, Probes: s.settings.Probes, Parked: r == Refusal && !success}
		now, changed, err := s.store.Probed(ctx, p.gate, success, t)
		if err != nil {
			return err // the row stays half open; the next probe decides
		}
		s.settle(now)
		if changed && now.State != p.gate.State {
			c := Change{From: p.gate, To: now}
			if now.State == Open {
				c.Message = Message(now, s.now())
			}
			s.changed(ctx, c)
		}
		return nil
	}
	if r == Refusal && s.settings.OnAuth != "park" {
		r = Failure // the account does not work: that is of the destination too
	}
	if t := s.record(p.gate, r, cause); t != nil {
		return s.save(ctx, *t)
	}
	return nil
}

// Close records a failure if nothing was recorded.
func (p *Permit) Close(ctx context.Context) error {
	return p.Done(ctx, Unsaid, "nobody said how it ended")
}
