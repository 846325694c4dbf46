package transporttest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

func zeroIsUnknown(t *testing.T, _ Fixture) {
	if (delivery.Outcome{}).Verdict != delivery.Unknown {
		t.Error("a forgotten case would not be unknown")
	}
}

func accepted(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	for i := range 3 { // the later ones over a kept connection, where there is one
		out, asked := send(t.Context(), t, p, nil)
		want(t, out, delivery.Accepted)
		wantArrived(t, p, i+1)
		if asked != 1 {
			t.Errorf("Proceed was asked %d times", asked)
		}
		if out.Remote == "" {
			t.Error("the outcome does not name the peer")
		}
	}
}

func refused(t *testing.T, f Fixture) {
	p := start(t, f, Refusing)
	for range 2 {
		out, asked := send(t.Context(), t, p, nil)
		want(t, out, delivery.Refused)
		if out.Answer.Phase == "" || out.Answer.Code == "" {
			t.Errorf("the refusal names no phase or no code: %+v", out.Answer)
		}
		if asked > 1 {
			t.Errorf("Proceed was asked %d times", asked)
		}
	}
	wantArrived(t, p, 0)
}

func babbled(t *testing.T, f Fixture) {
	p := start(t, f, Babbling)
	out, _ := send(t.Context(), t, p, nil) // always checks the texts
	want(t, out, delivery.Refused)
}

func silent(t *testing.T, f Fixture) {
	p := start(t, f, Silent)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out, asked := send(ctx, t, p, nil)
		want(t, out, delivery.Unknown)
		if asked != 1 {
			t.Errorf("Proceed was asked %d times", asked)
		}
	}()
	eventually(t, "the peer takes the message", func() bool { return p.Arrived() == 1 })
	cancel() // too late to call it back
	<-ended
}

func gone(t *testing.T, f Fixture) {
	p := start(t, f, Gone)
	out, asked := send(t.Context(), t, p, nil)
	want(t, out, delivery.Unknown)
	wantArrived(t, p, 1) // and not a second time by a hidden retry
	if asked != 1 {
		t.Errorf("Proceed was asked %d times", asked)
	}
}

func proceedStops(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	out, asked := send(t.Context(), t, p, func() error { return errors.New("the lease is gone") })
	want(t, out, delivery.Interrupted)
	if asked != 1 {
		t.Errorf("Proceed was asked %d times", asked)
	}
	wantArrived(t, p, 0)
	out, _ = send(t.Context(), t, p, nil) // and the next one is not harmed
	want(t, out, delivery.Accepted)
	wantArrived(t, p, 1)
}

func cancelledBefore(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out, asked := send(ctx, t, p, nil)
	want(t, out, delivery.Interrupted)
	if asked != 0 {
		t.Error("Proceed was asked although ctx had ended")
	}
	wantArrived(t, p, 0)
}

func timedOutBefore(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	out, asked := send(ctx, t, p, nil)
	want(t, out, delivery.Refused)
	if !out.Answer.Category.Retryable() {
		t.Errorf("a time-out would be final: %s", out.Answer.Category)
	}
	if asked != 0 {
		t.Error("Proceed was asked although ctx had ended")
	}
	wantArrived(t, p, 0)
}

func concurrent(t *testing.T, f Fixture) {
	const workers, each = 8, 5
	p := start(t, f, Friendly)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				out, asked := send(t.Context(), t, p, nil)
				want(t, out, delivery.Accepted)
				if asked != 1 {
					t.Errorf("Proceed was asked %d times", asked)
				}
			}
		})
	}
	wg.Wait()
	wantArrived(t, p, workers*each)
}

func closeWaits(t *testing.T, f Fixture) {
	p := start(t, f, Silent)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		send(ctx, t, p, nil)
	}()
	eventually(t, "the peer takes the message", func() bool { return p.Arrived() == 1 })
	closed := make(chan error, 1)
	go func() { closed <- p.Transport.Close() }()
	select {
	case <-closed:
		t.Error("Close returned while a send was in progress")
	case <-time.After(50 * time.Millisecond): // as long as one can show a thing not to happen
		cancel()
		select {
		case err := <-closed:
			if err != nil {
				t.Errorf("Close: %v", err)
			}
		case <-time.After(patience):
			t.Error("Close does not return after the last send")
		}
	}
	cancel()
	<-sent
}

func closeTwice(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	out, _ := send(t.Context(), t, p, nil)
	want(t, out, delivery.Accepted)
	closeSoon(t, p.Transport)
	closeSoon(t, p.Transport)
	out, asked := send(t.Context(), t, p, nil)
	want(t, out, delivery.Interrupted)
	if asked != 0 {
		t.Error("Proceed was asked after Close")
	}
	wantArrived(t, p, 1)
}

func leavesNoGoroutine(t *testing.T, f Fixture) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // runs after the fixture's own
	for _, m := range []Mood{Friendly, Refusing, Gone} {
		p := start(t, f, m)
		for range 3 {
			send(t.Context(), t, p, nil)
		}
	}
}
