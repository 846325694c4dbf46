package housetest

import (
	"sync"
	"time"
)

// Gate is the Delay of a mail server that keeps its clients waiting behind the
// final dot until it is told otherwise. Safe for concurrent use.
type Gate struct {
	mu      sync.Mutex
	arrived int
	allowed int // the first so many may pass
	open    bool
	swallow int // every so-manieth of the first among is never accepted, if it finds the gate shut
	among   int
	changed chan struct{} // closed and renewed at each change
}

// forever is longer than any test: a mail that waits so long is never accepted.
const forever = 9 * time.Minute

// NewGate makes a shut gate. Of the first mails, among so many, every n-th (swallow)
// is never accepted.
func NewGate(swallow, among int) *Gate {
	return &Gate{swallow: swallow, among: among, changed: make(chan struct{})}
}

// Delay waits for the gate; it is smtpsink.Options.Delay.
func (g *Gate) Delay() time.Duration {
	g.mu.Lock()
	g.arrived++
	number := g.arrived
	if !g.open && number <= g.among && number%g.swallow == 0 {
		g.mu.Unlock()
		return forever
	}
	for !g.open && number > g.allowed {
		changed := g.changed
		g.mu.Unlock()
		<-changed
		g.mu.Lock()
	}
	g.mu.Unlock()
	return 0
}

// Arrived is how many mails have come so far.
func (g *Gate) Arrived() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.arrived
}

// Let the first n that came or come through, but for the swallowed.
func (g *Gate) Let(n int) { g.change(func() { g.allowed = n }) }

// Open lets everything through from now on. A test opens its gate before its
// site ends.
func (g *Gate) Open() { g.change(func() { g.open = true }) }

func (g *Gate) change(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	do()
	close(g.changed)
	g.changed = make(chan struct{})
}
