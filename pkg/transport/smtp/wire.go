package smtp

import (
	"context"
	"net"
	"sync"
	"time"
)

// wire is one connection whose every read and write has a deadline: the limit of
// the step, the limit of the whole send, and the end of the send's context,
// whichever comes first.
type wire struct {
	net.Conn          // what is read and written; the TLS layer once there is one
	raw      net.Conn // what deadlines are set on

	mu    sync.Mutex
	limit time.Time // of the whole send; zero: none
	cut   bool      // the context has ended: no step may set a later deadline
}

func newWire(c net.Conn) *wire { return &wire{Conn: c, raw: c} }

// arm gives the next step d to finish.
func (w *wire) arm(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return
	}
	at := time.Now().Add(d)
	if !w.limit.IsZero() && w.limit.Before(at) {
		at = w.limit
	}
	// A connection that refuses a deadline is closed, and the next step says so.
	_ = w.raw.SetDeadline(at)
}

// within sets the limit of the whole send; the zero time lifts it.
func (w *wire) within(limit time.Time) {
	w.mu.Lock()
	w.limit = limit
	w.mu.Unlock()
}

// watch cuts whatever step is going on when ctx ends. The returned stop waits for
// that to be over and tells whether the connection was left alone.
func (w *wire) watch(ctx context.Context) (stop func() bool) {
	done := make(chan struct{})
	cancel := context.AfterFunc(ctx, func() {
		defer close(done)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cut = true
		_ = w.raw.SetDeadline(time.Unix(1, 0))
	})
	return func() bool {
		if cancel() {
			return true
		}
		<-done
		return false
	}
}
