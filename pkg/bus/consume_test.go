package bus_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/streams"
)

func reader(batch int) bus.Consumer {
	return bus.Consumer{Stream: streams.Events, Durable: "dead-letter", Filters: []string{streams.AllEvents()}, MaxBatch: batch,
		AckWait: 3 * time.Second, Log: zerolog.Nop()}
}

// run starts Consume and returns what ends it and gives its error.
func run(t *testing.T, js jetstream.JetStream, c bus.Consumer, h func(context.Context, []jetstream.Msg)) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- bus.Consume(ctx, js, c, h) }()
	return func() error { cancel(); return <-done }
}

func TestConsumeInBatches(t *testing.T) {
	t.Parallel()
	_, nc, js := withStreams(t)
	p := publisher(t, nc, patience)
	if err := p.Publish(t.Context(), events(0, 500)).Err(); err != nil {
		t.Fatal(err)
	}
	var got tally
	var largest, running, most atomic.Int64
	stop := run(t, js, reader(20), func(ctx context.Context, batch []jetstream.Msg) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		largest.Store(max(largest.Load(), int64(len(batch))))
		got.ack(ctx, batch)
	})
	eventually(t, "all are seen", func() bool { return got.distinct() == 500 })
	if largest.Load() > 20 || largest.Load() < 2 || most.Load() != 1 {
		t.Errorf("largest batch %d, at once %d", largest.Load(), most.Load())
	}
	// One alone is not kept waiting for others.
	if err := p.Publish(t.Context(), events(900, 901)).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the single one is seen", func() bool { return got.distinct() == 501 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	c, err := js.Consumer(t.Context(), streams.Events, "dead-letter")
	if err != nil {
		t.Fatal(err)
	}
	if cfg := c.CachedInfo().Config; cfg.MaxDeliver != -1 || cfg.AckWait != 3*time.Second || cfg.AckPolicy != jetstream.AckExplicitPolicy || cfg.InactiveThreshold != 0 {
		t.Errorf("%+v", cfg)
	}
}

// Shutdown waits for the handler in progress, whose context goes on; what was
// only fetched comes to somebody else.
func TestConsumeStops(t *testing.T) {
	t.Parallel()
	_, nc, js := withStreams(t)
	if err := publisher(t, nc, patience).Publish(t.Context(), events(0, 30)).Err(); err != nil {
		t.Fatal(err)
	}
	inside, release := make(chan struct{}), make(chan struct{})
	var finished atomic.Bool
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	c := reader(5)
	c.AckWait = patience
	var first tally
	go func() {
		done <- bus.Consume(ctx, js, c, func(hctx context.Context, batch []jetstream.Msg) {
			close(inside) // a second call would panic
			<-release
			if hctx.Err() != nil {
				t.Error("the handler's context ended:", hctx.Err())
			}
			first.ack(hctx, batch)
			finished.Store(true)
		})
	}()
	<-inside
	cancel()
	select {
	case <-done:
		t.Fatal("returned while the handler was in progress")
	default:
	}
	close(release)
	if err := <-done; err != nil || !finished.Load() {
		t.Fatal(err, finished.Load())
	}
	c.AckWait = 3 * time.Second
	var second tally
	stop := run(t, js, c, second.ack)
	eventually(t, "the rest is seen", func() bool { return first.distinct()+second.distinct() >= 30 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestConsumeParallel(t *testing.T) {
	t.Parallel()
	_, nc, js := withStreams(t)
	if err := publisher(t, nc, patience).Publish(t.Context(), events(0, 20)).Err(); err != nil {
		t.Fatal(err)
	}
	c := reader(1)
	c.Parallel = 3
	c.Log = zerolog.New(zerolog.NewTestWriter(t))
	c.AckWait = patience
	var running atomic.Int64
	three := make(chan struct{})
	var got tally
	stop := run(t, js, c, func(ctx context.Context, batch []jetstream.Msg) {
		if running.Add(1) == 3 {
			close(three)
		}
		<-three
		got.ack(ctx, batch)
	})
	eventually(t, "all are seen", func() bool { return got.distinct() == 20 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Whatever is taken away while consuming is built again.
func TestConsumeRebuilds(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(t *testing.T, b *box, js jetstream.JetStream){
		"consumer deleted": func(t *testing.T, _ *box, js jetstream.JetStream) {
			if err := js.DeleteConsumer(t.Context(), streams.Events, "dead-letter"); err != nil {
				t.Fatal(err)
			}
		},
		"stream recreated": func(t *testing.T, _ *box, js jetstream.JetStream) {
			if err := js.DeleteStream(t.Context(), streams.Events); err != nil {
				t.Fatal(err)
			}
			if _, err := streams.Apply(t.Context(), js, streams.Options{MaxBytes: 128 << 20}); err != nil {
				t.Fatal(err)
			}
		},
		"server restarted": func(t *testing.T, b *box, js jetstream.JetStream) {
			b.stop()
			b.start()
			eventually(t, "connected again", js.Conn().IsConnected)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, nc, js := withStreams(t)
			p := publisher(t, nc, 2*time.Second)
			var got tally
			stop := run(t, js, reader(8), got.ack)
			for round := range 3 {
				msgs := events(round*10, round*10+10)
				eventually(t, "published", func() bool { return p.Publish(t.Context(), msgs).Err() == nil })
				eventually(t, "consumed", func() bool { return got.distinct() == round*10+10 })
				harm(t, b, js)
			}
			msgs := events(500, 510)
			eventually(t, "published", func() bool { return p.Publish(t.Context(), msgs).Err() == nil })
			eventually(t, "consumed at the end", func() bool { return got.distinct() == 40 })
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The stream may come later than its consumer.
func TestConsumeBeforeTheStream(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	nc, js := connect(t, bus.Config{URL: b.url()})
	heard := make(lines, 1000)
	c := reader(8)
	c.Log = zerolog.New(heard)
	var got tally
	stop := run(t, js, c, got.ack)
	<-heard
	if _, err := streams.Apply(t.Context(), js, streams.Options{MaxBytes: 64 << 20}); err != nil {
		t.Fatal(err)
	}
	if err := publisher(t, nc, patience).Publish(t.Context(), events(0, 3)).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "consumed", func() bool { return got.distinct() == 3 })
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestConsumeEndsWithTheConnection(t *testing.T) {
	t.Parallel()
	_, nc, js := withStreams(t)
	seen := make(chan struct{}, 10)
	done := make(chan error, 1)
	go func() {
		done <- bus.Consume(t.Context(), js, reader(1), func(context.Context, []jetstream.Msg) { seen <- struct{}{} })
	}()
	if err := publisher(t, nc, patience).Publish(t.Context(), events(0, 1)).Err(); err != nil {
		t.Fatal(err)
	}
	<-seen
	nc.Close()
	if err := <-done; !errors.Is(err, nats.ErrConnectionClosed) {
		t.Error(err)
	}
	if err := bus.Consume(t.Context(), js, bus.Consumer{}, nil); err == nil {
		t.Error("a consumer without a stream passes")
	}
}

// When Consume, Serve and a doorbell have ended nothing of them is left. Not
// parallel: it looks at the goroutines of the process.
func TestNothingIsLeft(t *testing.T) {
	before := goleak.IgnoreCurrent()
	b, nc, js := withStreams(t)
	var got tally
	stop := run(t, js, reader(8), got.ack)
	if err := publisher(t, nc, patience).Publish(t.Context(), events(0, 10)).Err(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "consumed", func() bool { return got.distinct() == 10 })
	unhear, err := bus.OnRing(nc, "queue", func([]byte) {})
	if err != nil {
		t.Fatal(err)
	}
	unhear()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := bus.Serve(ctx, nc, echo("sender")); err != nil {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	// The server lives in this process too, and so does the connection.
	nc.Close()
	b.stop()
	goleak.VerifyNone(t, before)
}
