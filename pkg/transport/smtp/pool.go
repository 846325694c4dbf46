package smtp

import (
	"context"
	"sync"
	"time"
)

// pool holds the connections that wait for the next message and bounds how many
// there are in all: whoever holds a slot may have one connection.
type pool struct {
	slots  chan struct{}
	most   int           // messages over one connection
	unused time.Duration // after which an idle connection is closed

	mu     sync.Mutex
	idle   []*session // the newest last, so that the surplus grows old
	closed bool
}

func newPool(c Config) *pool {
	return &pool{slots: make(chan struct{}, c.MaxConnections), most: c.MaxPerConnection, unused: c.IdleTimeout}
}

// acquire waits for a slot until ctx ends or done is closed; false means no slot.
func (p *pool) acquire(ctx context.Context, done <-chan struct{}) bool {
	select {
	case p.slots <- struct{}{}:
		return true
	default:
	}
	select {
	case p.slots <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-done:
	}
	return false
}

func (p *pool) release() { <-p.slots }

// take returns the connection that was used last, nil when none waits.
func (p *pool) take() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.idle) - 1
	if n < 0 || time.Since(p.idle[n].idle) > p.unused {
		return nil
	}
	s := p.idle[n]
	p.idle = p.idle[:n]
	return s
}

// keep puts a connection back, or closes it when it is broken or worn out.
func (p *pool) keep(s *session) {
	if s.broken {
		s.drop()
		return
	}
	s.idle = time.Now()
	p.mu.Lock()
	keep := s.sent < p.most && !p.closed
	if keep {
		p.idle = append(p.idle, s)
	}
	p.mu.Unlock()
	if !keep {
		s.farewell()
	}
}

// sweep closes what has been idle too long; all of it when the pool is closing.
func (p *pool) sweep(all bool) {
	p.mu.Lock()
	p.closed = p.closed || all
	n := 0
	for n < len(p.idle) && (all || time.Since(p.idle[n].idle) > p.unused) {
		n++
	}
	old := append([]*session(nil), p.idle[:n]...)
	p.idle = append(p.idle[:0], p.idle[n:]...)
	p.mu.Unlock()
	for _, s := range old {
		s.farewell()
	}
}
