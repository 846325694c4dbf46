package bench

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/transport"
)

// way is the transport of a measurement: it accepts, after a time of its own.
type way struct {
	seen  func(transport.Message)               // may be nil
	takes func(transport.Message) time.Duration // nil: no time at all
	count atomic.Int64
	want  int64
	full  chan struct{} // closed when want messages have been seen; nil with want 0
}

// noop accepts at once and tells when it has seen n messages.
func noop(n int) *way { return &way{want: int64(n), full: make(chan struct{})} }

// Send asks Proceed as a real transport does.
func (w *way) Send(ctx context.Context, m transport.Message) delivery.Outcome {
	if err := m.Proceed(); err != nil {
		return delivery.Outcome{Verdict: delivery.Interrupted, Answer: delivery.Answer{Phase: "proceed", Text: err.Error()}}
	}
	if w.seen != nil {
		w.seen(m)
	}
	if w.count.Add(1) == w.want {
		close(w.full)
	}
	if w.takes != nil {
		if err := wait(ctx, w.takes(m)); err != nil {
			return delivery.Outcome{Answer: delivery.Answer{Phase: "final", Text: "cut off"}}
		}
	}
	return delivery.Outcome{Verdict: delivery.Accepted, Remote: "bench:25", RemoteID: "0123456789abcdef",
		Answer: delivery.Answer{Phase: "final", Code: "250", Enhanced: "2.0.0", Text: "OK queued"}}
}

// Close has nothing to close.
func (*way) Close() error { return nil }

// all returns when the wanted number has been seen.
func (w *way) all(ctx context.Context) error {
	select {
	case <-w.full:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
