package watchdog

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

// republishPage is how many events go out together.
const republishPage = 200

// republisher publishes events of the book once more, no faster than rate.
type republisher struct {
	book *ledger.Ledger
	bus  interface {
		Publish(ctx context.Context, messages []*nats.Msg) bus.Result
	}
	rate int // per second

	began time.Time // of the present burst
	sent  int       // in it
}

// publish sends the events page by page. msgID gives the id that the stream
// deduplicates by; the event's own id stays in its header and in its body, and is
// what consumers go by. It returns how many were acknowledged.
func (r *republisher) publish(ctx context.Context, keys []ledger.EventKey, msgID func(ledger.BookedEvent) string, after func() error) (int64, error) {
	var published int64
	for len(keys) > 0 {
		page := keys[:min(len(keys), republishPage)]
		keys = keys[len(page):]
		events, err := r.book.EventBodies(ctx, page)
		if err != nil {
			return published, err
		}
		messages := make([]*nats.Msg, len(events))
		for i, e := range events {
			m := &nats.Msg{Subject: e.Subject, Data: e.Body, Header: nats.Header{}}
			m.Header.Set(bus.HeaderMsgID, msgID(e))
			m.Header.Set(bus.HeaderEventID, e.String())
			messages[i] = m
		}
		result := r.bus.Publish(ctx, messages)
		published += int64(len(messages) - len(result.Failed))
		for _, err := range result.Failed { // one says enough
			return published, fmt.Errorf("publish again: %d of %d not acknowledged: %w", len(result.Failed), len(messages), err)
		}
		if err := after(); err != nil {
			return published, err
		}
		if err := r.pace(ctx, len(messages)); err != nil {
			return published, err
		}
	}
	return published, nil
}

// pace waits until n more events fit the rate.
func (r *republisher) pace(ctx context.Context, n int) error {
	now := time.Now()
	due := r.began.Add(time.Duration(float64(r.sent) / float64(r.rate) * float64(time.Second)))
	if now.Sub(due) > time.Second { // it stood still: what was not used is not made up for
		r.began, r.sent, due = now, 0, now
	}
	r.sent += n
	due = r.began.Add(time.Duration(float64(r.sent) / float64(r.rate) * float64(time.Second)))
	return pause(ctx, time.Until(due))
}

// pause waits, or returns the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
