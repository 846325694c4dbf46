package breaker

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Permit allows one call. It counts once, however often Done is called.
type Permit struct {
	set  *Set
	gate Gate
	used atomic.Bool
}

// Done says what the call has shown of its destination; cause is the failure, for a
// person. Only the first call counts. An error means that a change of state could not
// be stored; this instance keeps to it all the same.
func (p *Permit) Done(ctx context.Context, r Result, cause string) error {
	if !p.used.CompareAndSwap(false, true) || r == Excluded {
		return nil
	}
	if p.gate.State == HalfOpen {
		return p.probed(ctx, r, cause)
	}
	if t := p.set.record(p.gate, r, cause); t != nil {
		return p.set.save(ctx, *t)
	}
	return nil
}

// probed tells the row what a probe has shown. A row that could not be told stays
// half open: the claim that was the permit ends, and the next one decides.
func (p *Permit) probed(ctx context.Context, r Result, cause string) error {
	s := p.set
	t := Trip{Gate: p.gate, Cause: bound(cause), For: s.settings.OpenFor, Probes: s.settings.Probes, Parked: s.settings.parks(r)}
	now, changed, err := s.store.Probed(ctx, p.gate, r == Success || r == Throttle, t)
	if err != nil {
		return fmt.Errorf("probe of %s: %w", p.gate.Key, err)
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

// Close records a failure if nothing was recorded.
func (p *Permit) Close(ctx context.Context) error {
	return p.Done(ctx, Unsaid, "nobody said how it ended")
}
