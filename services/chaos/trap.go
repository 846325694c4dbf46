package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
)

// Trap is a point on a wire. When a message with its label comes by, Do is called
// before it goes on: true lets it go on, false cuts the connection, so that the
// message and all behind it are lost.
type Trap struct {
	Way   Way
	Label string
	Skip  int // so many go by first
	Times int // then so many are caught; 0: one
	Do    func() bool

	once  sync.Once
	fired chan struct{}
}

// Cut loses the message.
func Cut() bool { return false }

// Arm sets a trap; Heal takes it away.
func (p *Proxy) Arm(t *Trap) *Trap {
	t.fired = make(chan struct{})
	t.Times = max(t.Times, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
	return t
}

// Fired waits until the trap was sprung and its Do has returned.
func (t *Trap) Fired(ctx context.Context) error {
	select {
	case <-t.fired:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nothing came by that is %q: %w", t.Label, context.Cause(ctx))
	}
}

func (t *Trap) spring() bool {
	pass := t.Do()
	t.once.Do(func() { close(t.fired) })
	return pass
}

// sprung is the trap that this message springs.
func (p *Proxy) sprung(way Way, label string) *Trap {
	if label == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, t := range p.traps {
		if t.Way != way || t.Label != label {
			continue
		}
		if t.Skip > 0 {
			t.Skip--
			return nil
		}
		if t.Times--; t.Times == 0 {
			p.traps = slices.Delete(p.traps, i, i+1)
		}
		return t
	}
	return nil
}
