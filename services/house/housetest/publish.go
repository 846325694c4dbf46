package housetest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// Mail is a small request of a tenant.
func Mail(tenant, id, to string) *nats.Msg {
	return Request(tenant, delivery.Request{ID: id, MailRequest: delivery.MailRequest{To: []string{to}, Subject: "mail " + id, Text: "text of " + id}})
}

// Request is a request of a tenant as a message; its id is in the body only, so
// that two tenants may use the same.
func Request(tenant string, r delivery.Request) *nats.Msg {
	r.Version = 1
	body, err := json.Marshal(r)
	if err != nil {
		panic(err) // a request of the tests' own making
	}
	return Raw(streams.Send(string(delivery.Mail), tenant), body)
}

// Mails makes n requests of one tenant to different recipients at example.org.
func Mails(tenant string, n int) []*nats.Msg {
	list := make([]*nats.Msg, n)
	for i := range list {
		list[i] = Mail(tenant, fmt.Sprintf("r-%05d", i), fmt.Sprintf("to-%05d@example.org", i))
	}
	return list
}

// Raw is any bytes on any subject.
func Raw(subject string, body []byte) *nats.Msg {
	return &nats.Msg{Subject: subject, Data: body, Header: nats.Header{}}
}

// Publish returns when the stream has acknowledged all.
func (s *Site) Publish(messages ...*nats.Msg) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	futures := make([]jetstream.PubAckFuture, len(messages))
	var err error
	for i, m := range messages {
		if futures[i], err = s.JS.PublishMsgAsync(m, jetstream.WithStallWait(time.Minute)); err != nil {
			s.T.Fatalf("publish %s: %v", m.Subject, err)
		}
	}
	for i, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			s.T.Fatalf("publish %s: %v", messages[i].Subject, err)
		case <-ctx.Done():
			s.T.Fatalf("publish %s: %v", messages[i].Subject, ctx.Err())
		}
	}
}

// Stream reads everything that a stream holds.
func (s *Site) Stream(name string) []*nats.Msg {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	stream, err := s.JS.Stream(ctx, name)
	if err != nil {
		s.T.Fatal(err)
	}
	last := stream.CachedInfo().State.LastSeq
	if stream.CachedInfo().State.Msgs == 0 {
		return nil
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		s.T.Fatal(err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		s.T.Fatal(err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	var all []*nats.Msg
	for {
		m, err := messages.Next()
		if err != nil {
			s.T.Fatalf("read stream %s after %d messages: %v", name, len(all), err)
		}
		all = append(all, &nats.Msg{Subject: m.Subject(), Data: m.Data(), Header: m.Headers()})
		if meta, err := m.Metadata(); err != nil || meta.Sequence.Stream >= last {
			return all
		}
	}
}

// EventID is the header that names an event.
func EventID(m *nats.Msg) string { return m.Header.Get(bus.HeaderEventID) }
