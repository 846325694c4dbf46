package ledger_test

import (
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a pool and the database and can swallow its answers.
type proxy struct {
	listener net.Listener
	target   string
	deaf     atomic.Bool  // answers of the database are dropped, and the connection with the first of them
	pass     atomic.Int64 // so many answers still come through
	dropped  atomic.Int64 // answers lost so far
	wg       sync.WaitGroup
}

// throughProxy gives the database's URL by way of a proxy.
func throughProxy(t *testing.T, dsn string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: u.Host}
	p.wg.Go(p.serve)
	t.Cleanup(func() {
		_ = listener.Close()
		p.wg.Wait()
	})
	u.Host = listener.Addr().String()
	return p, u.String()
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		hangUp := sync.OnceFunc(func() { _ = client.Close(); _ = server.Close() })
		p.wg.Go(func() { p.copy(server, client, false); hangUp() })
		p.wg.Go(func() { p.copy(client, server, true); hangUp() })
	}
}

func (p *proxy) copy(to, from net.Conn, answers bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && answers && p.deaf.Load() && p.pass.Add(-1) < 0 {
			p.dropped.Add(1)
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// dropNth loses the answer that follows n others, until stop.
func dropNth(p *proxy, n int) (stop func()) {
	p.pass.Store(int64(n))
	p.deaf.Store(true)
	return func() {
		p.deaf.Store(false)
		p.pass.Store(0)
	}
}
