package forward

import (
	"context"
	"sync"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Gate is the front door of every forwarder: what does not pass was not begun,
// and Close waits for what has passed. The zero value is open.
type Gate struct {
	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

// Enter lets a forward begin, or gives the outcome of one that must not. After
// true, Leave must follow.
func (g *Gate) Enter(ctx context.Context, d *Document) (Outcome, bool) {
	if out, over := Ended(ctx, PhasePayload); over {
		return out, false
	}
	if err := d.Check(); err != nil {
		return Refused(delivery.InvalidInput, PhasePayload, CodeDocument, err.Error(), false), false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return Outcome{Outcome: delivery.Outcome{
			Verdict: delivery.Interrupted,
			Answer:  delivery.Answer{Phase: PhasePayload, Code: CodeInterrupted, Text: "the forwarder is closed"},
		}}, false
	}
	g.inside.Add(1)
	return Outcome{}, true
}

// Leave ends a forward.
func (g *Gate) Leave() { g.inside.Done() }

// Close lets nothing begin any more and waits for what is inside.
func (g *Gate) Close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.inside.Wait()
}
