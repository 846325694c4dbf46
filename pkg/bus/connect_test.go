package bus_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/streams"
)

// A process may start before its server, and a publish before that fails at once.
func TestConnectBeforeTheServer(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	b.stop()
	nc, err := bus.Connect(t.Context(), bus.Config{URL: b.url()}, "early", zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.Publish("x", nil); err == nil {
		t.Error("a publish is kept in memory")
	}
	b.start()
	eventually(t, "connected", nc.IsConnected)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := bus.Connect(ctx, bus.Config{URL: b.url()}, "late", zerolog.Nop()); err == nil {
		t.Error("an ended context connects")
	}
}

// link is a wire to a server that can be cut.
type link struct {
	addr string
	mu   sync.Mutex
	open map[net.Conn]struct{}
	wg   sync.WaitGroup
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l := &link{open: map[net.Conn]struct{}{}}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.addr = ln.Addr().String()
	l.wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			l.mu.Lock()
			l.open[in], l.open[out] = struct{}{}, struct{}{}
			l.mu.Unlock()
			l.wg.Go(func() { pump(out, in) })
			l.wg.Go(func() { pump(in, out) })
		}
	})
	t.Cleanup(func() { _ = ln.Close(); l.cut(); l.wg.Wait() })
	return l
}

func pump(to, from net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, e := to.Write(buf[:n]); e != nil {
				err = e
			}
		}
		if err != nil {
			_, _ = to.Close(), from.Close()
			return
		}
	}
}

// cut breaks every connection that is open now.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Close()
		delete(l.open, c)
	}
}

// Twenty cuts: publishing and consuming go on, nothing is lost, and the stream
// holds nothing twice.
func TestFlaps(t *testing.T) {
	t.Parallel()
	b, _, _ := withStreams(t)
	l := newLink(t, b.s.Addr().String())
	nc, js := connect(t, bus.Config{URL: "nats://" + l.addr})
	pub, err := bus.NewPublisher(nc, 300*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var got tally
	done := make(chan error, 1)
	go func() {
		done <- bus.Consume(ctx, js, bus.Consumer{Stream: streams.Events, Durable: "dead-letter", MaxBatch: 8, AckWait: time.Second, Log: zerolog.Nop()}, got.ack)
	}()
	total := 0
	for flap := range 20 {
		l.cut()
		var msgs []*nats.Msg
		for i := range 10 {
			msgs = append(msgs, event(string(rune('a'+flap))+string(rune('a'+i))))
		}
		total += len(msgs)
		eventually(t, "published", func() bool {
			r := pub.Publish(ctx, msgs)
			msgs = unsettled(msgs, r)
			return len(msgs) == 0
		})
		eventually(t, "consumed", func() bool { return got.distinct() == total })
	}
	_, direct := connect(t, bus.Config{URL: b.url()})
	if n := stored(t, direct, streams.Events); n != uint64(total) {
		t.Errorf("%d stored, want %d", n, total)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func unsettled(msgs []*nats.Msg, r bus.Result) []*nats.Msg {
	var left []*nats.Msg
	for i, m := range msgs {
		if r.Failed[i] != nil {
			left = append(left, m)
		}
	}
	return left
}
