package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/transport"
	"github.com/posthouse-io/posthouse/streams"
)

// traces are the moments of each request by its number, in nanoseconds since
// began; 0 = not yet.
type traces struct {
	began                  time.Time
	published, sent, event []atomic.Int64
	missing                atomic.Int64 // events that have not come
	all                    chan struct{}
}

func newTraces(n int) *traces {
	t := &traces{began: time.Now(), published: make([]atomic.Int64, n), sent: make([]atomic.Int64, n), event: make([]atomic.Int64, n), all: make(chan struct{})}
	t.missing.Store(int64(n))
	return t
}

func (t *traces) now() int64 { return max(1, int64(time.Since(t.began))) }

// mark notes a moment, the first time only. It tells whether it was the first.
func (t *traces) mark(list []atomic.Int64, number string) bool {
	i, err := strconv.Atoi(number)
	return err == nil && i >= 0 && i < len(list) && list[i].CompareAndSwap(0, t.now())
}

// seen notes what the transport is given: the address is q<number>@example.test.
func (t *traces) seen(m transport.Message) {
	if name, _, ok := strings.Cut(m.Recipients[0].Address, "@"); ok && name[0] == 'q' {
		t.mark(t.sent, name[1:])
	}
}

// heard notes an event.
func (t *traces) heard(m *nats.Msg) {
	ev, err := delivery.DecodeEvent(m.Data)
	if err == nil && ev.RequestID != "" && ev.RequestID[0] == 'q' && t.mark(t.event, ev.RequestID[1:]) && t.missing.Add(-1) == 0 {
		close(t.all)
	}
}

// between lists how long requests took from one moment to another, in
// milliseconds and ascending, without the first skip of them.
func between(from, to []atomic.Int64, skip int) []float64 {
	out := make([]float64, 0, len(from))
	for i := skip; i < len(from); i++ {
		if a, b := from[i].Load(), to[i].Load(); a > 0 && b > 0 {
			out = append(out, float64(b-a)/1e6)
		}
	}
	slices.Sort(out)
	return out
}

// quantile picks from an ascending list.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1)+0.5)]
}

// publish publishes requests of a tenant at a rate, whatever becomes of them, and
// returns when the event of each last state has been heard.
func (at *site) publish(ctx context.Context, t *traces, tenant string, rate int) error {
	listen, err := nats.Connect(at.natsURL)
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	defer listen.Close()
	if _, err := listen.Subscribe(streams.Event(streams.KindDelivery, string(delivery.Sent), string(delivery.Mail), tenant), t.heard); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if err := listen.Flush(); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	interval := time.Second / time.Duration(rate)
	for i, next := 0, time.Now(); i < len(t.published); i, next = i+1, next.Add(interval) {
		m, err := request(tenant, "q"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		if err := wait(ctx, time.Until(next)); err != nil {
			return err
		}
		t.published[i].Store(t.now())
		if _, err := at.js.PublishMsgAsync(m, jetstream.WithStallWait(stopServers)); err != nil {
			return fmt.Errorf("publish request %d: %w", i, err)
		}
	}
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// delay is what one load showed, in milliseconds.
type delay struct{ sendP50, sendP99, eventP50, eventP99 float64 }

// latency publishes at a rate and measures until the first byte at the transport
// and until the event at a subscriber.
func (s *servers) latency(ctx context.Context, r Rate) (d delay, err error) {
	err = s.on(ctx, ground{}, func(ctx context.Context, at *site) error {
		t := newTraces(r.Rows + r.Warm)
		err := at.sending(ctx, &way{seen: t.seen}, func(ctx context.Context) error { return at.publish(ctx, t, tenant, r.PerSecond) })
		send, event := between(t.published, t.sent, r.Warm), between(t.published, t.event, r.Warm)
		d = delay{quantile(send, 0.5), quantile(send, 0.99), quantile(event, 0.5), quantile(event, 0.99)}
		return err
	})
	return d, err
}
