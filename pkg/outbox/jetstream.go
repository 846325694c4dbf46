package outbox

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
)

// JetStream publishes through the bus: atomic batches, each message under its id.
type JetStream struct{ Bus *bus.Publisher }

// Publish sends the messages and returns those that were not acknowledged.
func (j JetStream) Publish(ctx context.Context, messages []Message) map[int]error {
	out := make([]*nats.Msg, len(messages))
	for i, m := range messages {
		msg := &nats.Msg{Subject: m.Subject, Data: m.Body, Header: nats.Header{}}
		msg.Header.Set(bus.HeaderMsgID, m.ID)
		msg.Header.Set(bus.HeaderEventID, m.ID)
		if m.Trace != "" {
			msg.Header.Set(bus.HeaderTraceParent, m.Trace)
		}
		out[i] = msg
	}
	return j.Bus.Publish(ctx, out).Failed
}

// isUnreachable tells a stream that gave no answer from one that refused. Nobody
// answering for the stream (restart, election) is no answer either.
func isUnreachable(err error) bool {
	return bus.Unanswered(err) || errors.Is(err, context.Canceled) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse)
}
