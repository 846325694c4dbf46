package chaos

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Way is a direction on a wire.
type Way int

// From the service to the server, and back.
const (
	Up Way = iota
	Down
)

// Fault is what ails a wire; the zero value is a sound one.
type Fault struct {
	Refuse   bool          // nobody is let in; who is in is thrown out
	Latency  time.Duration // of each piece, each way
	Jitter   time.Duration // up to so much more
	Rate     int           // bytes a second each way; 0: as fast as it goes
	Silent   [2]bool       // by Way: nothing comes through, and nothing breaks (what was written arrives when it is mended)
	CutAfter int64         // reset after so many bytes from the server, per connection; 0: never
}

// Proxy is the wire between one service and one server. Why not a library: the
// points of a crash (before a COMMIT leaves, after its answer has come) are those
// of the protocols, and a proxy of bytes does not see them.
type Proxy struct {
	name     string
	target   string
	protocol protocol
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed and renewed at each change of fault
	traps   []*Trap
	links   map[*link]struct{}
	closed  bool
}

// link is one connection through a proxy.
type link struct {
	proxy          *Proxy
	client, server net.Conn
	gone           chan struct{}
	once           sync.Once
	answered       int64 // bytes from the server
}

// newProxy listens on a free port of 127.0.0.1. protocol may be nil: bytes.
func newProxy(name, target string, p protocol) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy %s: %w", name, err)
	}
	x := &Proxy{name: name, target: target, protocol: p, listener: l, changed: make(chan struct{}), links: map[*link]struct{}{}}
	x.running.Go(x.serve)
	return x, nil
}

// Addr is where the service finds its server.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Set puts a fault on the wire.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if f.Refuse {
		p.Reset()
	}
}

// Heal takes the fault and all traps away.
func (p *Proxy) Heal() {
	p.mu.Lock()
	p.traps = nil
	p.mu.Unlock()
	p.Set(Fault{})
}

// Reset breaks every connection as a router would that forgot them.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Close ends the wire and waits.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Reset()
	p.running.Wait()
}

func (p *Proxy) state() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.changed
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		if f, _ := p.state(); f.Refuse {
			reset(client)
			continue
		}
		server, err := net.DialTimeout("tcp", p.target, 2*time.Second)
		if err != nil {
			reset(client)
			continue
		}
		l := &link{proxy: p, client: client, server: server, gone: make(chan struct{})}
		p.mu.Lock()
		p.links[l] = struct{}{}
		closed := p.closed
		p.mu.Unlock()
		if closed {
			l.cut()
		}
		var up, down splitter = bytesOf(client), bytesOf(server)
		if p.protocol != nil {
			up, down = p.protocol(client, server)
		}
		p.running.Go(func() { l.pump(Up, up, server) })
		p.running.Go(func() { l.pump(Down, down, client) })
	}
}

// cut resets both ends, once.
func (l *link) cut() {
	l.once.Do(func() {
		close(l.gone)
		reset(l.client)
		reset(l.server)
	})
}

// end closes both ends in order: what was written still arrives.
func (l *link) end() {
	l.once.Do(func() {
		close(l.gone)
		_ = l.client.Close()
		_ = l.server.Close()
	})
}

func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// pump brings one way's messages across, one by one.
func (l *link) pump(way Way, from splitter, to io.Writer) {
	defer func() {
		l.end()
		l.proxy.mu.Lock()
		delete(l.proxy.links, l)
		l.proxy.mu.Unlock()
	}()
	for {
		m, err := from.next()
		if len(m.raw) > 0 {
			if e := l.carry(way, m, to); e != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

var errCut = errors.New("cut")

func (l *link) carry(way Way, m piece, to io.Writer) error {
	if t := l.proxy.sprung(way, m.label); t != nil && !t.spring() {
		l.cut()
		return errCut
	}
	for {
		f, changed := l.proxy.state()
		if !f.Silent[way] {
			if err := l.pass(f, way, m.raw, to); err != nil {
				return err
			}
			return nil
		}
		select {
		case <-changed:
		case <-l.gone:
			return errCut
		}
	}
}

// pass writes one piece as slowly as the fault wants it, and breaks off where it
// says so.
func (l *link) pass(f Fault, way Way, raw []byte, to io.Writer) error {
	wait := f.Latency
	if f.Jitter > 0 {
		wait += rand.N(f.Jitter)
	}
	if f.Rate > 0 {
		wait += time.Duration(len(raw)) * time.Second / time.Duration(f.Rate)
	}
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
		case <-l.gone:
			return errCut
		}
	}
	if way == Down {
		l.answered += int64(len(raw))
		if f.CutAfter > 0 && l.answered > f.CutAfter {
			l.cut()
			return errCut
		}
	}
	_, err := to.Write(raw)
	return err
}
