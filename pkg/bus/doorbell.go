package bus

import (
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/streams"
)

// A doorbell only says "look now": it is core NATS, kept nowhere, and may be
// lost. Whoever is woken by it also polls.

// Ring tells everybody who waits for work of that kind, at most once each. An
// error means that nobody heard; nothing else follows from it: the poll is the truth.
// The bell is sent as JSON.
func Ring(nc *nats.Conn, kind string, bell any) error {
	payload, err := json.Marshal(bell)
	if err != nil {
		return fmt.Errorf("ring %s: %w", kind, err)
	}
	if err := nc.Publish(streams.Doorbell(kind), payload); err != nil {
		return fmt.Errorf("ring %s: %w", kind, err)
	}
	return nil
}

// OnRing calls ring for every doorbell of that kind, one at a time; a slow ring
// loses some. stop ends it and returns when a ring in progress has returned, so
// it must not be called from within ring.
func OnRing(nc *nats.Conn, kind string, ring func(payload []byte)) (stop func(), err error) {
	sub, err := nc.Subscribe(streams.Doorbell(kind), func(m *nats.Msg) { ring(m.Data) })
	if err != nil {
		return nil, fmt.Errorf("doorbell %s: %w", kind, err)
	}
	ended := make(chan struct{})
	sub.SetClosedHandler(func(string) { close(ended) })
	if err := sub.SetPendingLimits(1024, 1<<20); err != nil {
		return nil, fmt.Errorf("doorbell %s: %w", kind, err)
	}
	return func() {
		_ = sub.Unsubscribe() // fails only when it has ended already
		<-ended
	}, nil
}
