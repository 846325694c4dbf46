package smtpsink

import (
	"net"
	"sync"
)

// conns is a listener that knows its open connections, so that Close can end
// and await them: the server's own Close does neither for one just accepted.
type conns struct {
	net.Listener
	mu     sync.Mutex
	open   map[*conn]struct{}
	closed bool
	wg     sync.WaitGroup
}

// conn leaves the set when it is closed, which the server does last of all.
type conn struct {
	net.Conn
	from *conns
	once sync.Once
}

func (l *conns) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = c.Close()
		return nil, net.ErrClosed
	}
	k := &conn{Conn: c, from: l}
	l.open[k] = struct{}{}
	l.wg.Add(1)
	return k, nil
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() {
		c.from.mu.Lock()
		delete(c.from.open, c)
		c.from.mu.Unlock()
		c.from.wg.Done()
	})
	return err
}

// end closes what is open and waits until the server has let go of it.
func (l *conns) end() {
	l.mu.Lock()
	l.closed = true
	for c := range l.open {
		_ = c.Conn.Close() // wakes the server, which then calls our Close
	}
	l.mu.Unlock()
	l.wg.Wait()
}
