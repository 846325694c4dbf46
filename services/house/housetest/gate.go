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
	passed  int
	allowed int
	open    bool
	swallow int // every n-th of those that come while the gate is shut is never accepted; 0: none
	changed chan struct{}
}

// forever is longer than any test: a mail that waits so long is never accepted.
const forever = 9 * time.Minute

// NewGate makes a shut gate. Every n-th mail that comes before it opens is never
// accepted (swallow 0: all are in the end).
func NewGate(swallow int) *Gate { return &Gate{swallow: swallow, changed: make(chan struct{})} }

// Delay waits for the gate; it is smtpsink.Options.Delay.
func (g *Gate) Delay() time.Duration {
	g.mu.Lock()
	g.arrived++
	if !g.open && g.swallow > 0 && g.arrived%g.swallow == 0 {
		g.mu.Unlock()
		return forever
	}
	for !g.open && g.passed >= g.allowed {
		changed := g.changed
		g.mu.Unlock()
		<-changed
		g.mu.Lock()
	}
	g.passed++
	g.mu.Unlock()
	return 0
}

// Arrived is how many mails have come so far.
func (g *Gate) Arrived() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.arrived
}

// Let n more through.
func (g *Gate) Let(n int) { g.change(func() { g.allowed += n }) }

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
