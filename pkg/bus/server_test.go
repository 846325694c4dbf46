package bus_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/streams"
)

const patience = 60 * time.Second

// box is a private server that can be stopped and started on the same port with
// the same disk.
type box struct {
	t    *testing.T
	opts *server.Options
	s    *server.Server
}

func newBox(t *testing.T) *box {
	t.Helper()
	b := &box{t: t, opts: &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: t.TempDir(), MaxPayload: 8 << 20}}
	b.start()
	t.Cleanup(b.stop)
	return b
}

func (b *box) start() {
	b.t.Helper()
	s, err := server.NewServer(b.opts)
	if err != nil {
		b.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		b.t.Fatal("server is not ready")
	}
	b.s = s
	b.opts.Port = s.Addr().(*net.TCPAddr).Port
}

func (b *box) stop() {
	b.s.Shutdown()
	b.s.WaitForShutdown()
}

func (b *box) url() string { return b.s.ClientURL() }

func connect(t *testing.T, cfg bus.Config) (*nats.Conn, jetstream.JetStream) {
	t.Helper()
	nc, err := bus.Connect(t.Context(), cfg, t.Name(), zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.Disabled))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "connected", nc.IsConnected)
	return nc, js
}

// withStreams is a server that has our streams, and a client of it.
func withStreams(t *testing.T) (*box, *nats.Conn, jetstream.JetStream) {
	t.Helper()
	b := newBox(t)
	nc, js := connect(t, bus.Config{URL: b.url()})
	if _, err := streams.Apply(t.Context(), js, streams.Options{MaxBytes: 128 << 20}); err != nil {
		t.Fatal(err)
	}
	return b, nc, js
}

// eventually polls a condition; nothing here waits for a fixed time.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

// event is a message for the event stream under an id.
func event(id string) *nats.Msg {
	m := nats.NewMsg(streams.Event(streams.KindDelivery, "sent", "mail", "acme"))
	m.Header.Set(bus.HeaderMsgID, id)
	m.Data = []byte(id)
	return m
}

func stored(t *testing.T, js jetstream.JetStream, stream string) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), stream)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.Msgs
}

// tally counts what handlers saw, by body.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *tally) ack(_ context.Context, batch []jetstream.Msg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[string]int{}
	}
	for _, m := range batch {
		c.seen[string(m.Data())]++
		_ = m.Ack() // a lost one means a second delivery, which the tests allow
	}
}

func (c *tally) distinct() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seen)
}
