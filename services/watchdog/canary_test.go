package watchdog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/streams"
)

// pipe stands for the rest of the house: it answers each request of the canary with
// the event that ends, once it may.
func (s *site) pipe(end delivery.State, may <-chan struct{}) (requests chan *delivery.Request) {
	s.t.Helper()
	requests = make(chan *delivery.Request, 10)
	cons, err := s.js.CreateOrUpdateConsumer(s.t.Context(), streams.Requests, jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy, FilterSubject: streams.Send("mail", canaryTenant)})
	if err != nil {
		s.t.Fatal(err)
	}
	consuming, err := cons.Consume(func(m jetstream.Msg) {
		r, err := delivery.DecodeRequest(m.Data(), m.Headers().Get(bus.HeaderMsgID))
		if err != nil {
			s.t.Error(err)
			return
		}
		requests <- r
		select {
		case <-may:
		case <-s.t.Context().Done():
			return
		}
		ev := delivery.Event{ID: delivery.NewID(), Version: 2, State: end, Tenant: canaryTenant, Channel: delivery.Mail, RequestID: r.ID, At: time.Now()}
		body, err := ev.Encode()
		if err != nil {
			s.t.Error(err)
			return
		}
		out := &nats.Msg{Subject: streams.Event(streams.KindDelivery, string(end), "mail", canaryTenant), Data: body, Header: nats.Header{bus.HeaderMsgID: {ev.Event}}}
		if err := s.bus.Publish(context.WithoutCancel(s.t.Context()), []*nats.Msg{out}).Err(); err != nil {
			s.t.Error(err)
		}
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(consuming.Stop)
	return requests
}

func TestCanaryComesHome(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cfg.Canary = CanaryConfig{Address: "canary@example.test", Every: time.Hour, Late: time.Minute}
	open := make(chan struct{})
	close(open)
	requests := s.pipe(delivery.Sent, open)
	if err := s.canary(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-requests; !slices.Equal(r.To, []string{"canary@example.test"}) {
		t.Fatalf("%+v", r)
	}
	var last flight
	if done, err := s.book.LastDuty(t.Context(), canaryDuty, &last); err != nil || !done || last.State != delivery.Sent || last.Seconds <= 0 {
		t.Fatalf("%+v %v %v", last, done, err)
	}
	if err := s.canary(t.Context()); err != nil { // not again within the hour
		t.Fatal(err)
	}
	if len(requests) != 0 || len(s.raised()) != 0 {
		t.Fatal(len(requests), s.raised())
	}
}

// While one is late no other follows; when it comes home after all, all is well.
func TestCanaryIsLate(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cfg.Canary = CanaryConfig{Address: "canary@example.test", Every: time.Nanosecond, Late: time.Second}
	open := make(chan struct{})
	requests := s.pipe(delivery.Sent, open)
	flown := make(chan error, 1)
	go func() { flown <- s.canary(t.Context()) }()
	localtest.Eventually(t, 20*time.Second, func() error {
		if got := s.raised(); !slices.Equal(got, []string{canaryAlarm}) {
			return fmt.Errorf("raised: %v", got)
		}
		return nil
	})
	if err := s.canary(t.Context()); err != nil || len(requests) != 1 {
		t.Fatalf("%d are out, %v", len(requests), err)
	}
	close(open)
	if err := <-flown; err != nil {
		t.Fatal(err)
	}
	if got := s.raised(); len(got) != 1 {
		t.Fatalf("it came after its time and the alarm is gone: %v", got)
	}
	s.cfg.Canary.Late = time.Minute
	if err := s.canary(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.raised(); len(got) != 0 {
		t.Fatal(got)
	}
}

func TestCanaryThatIsNotSent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cfg.Canary = CanaryConfig{Address: "canary@example.test", Every: time.Hour, Late: time.Minute}
	open := make(chan struct{})
	close(open)
	s.pipe(delivery.Failed, open)
	if err := s.canary(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.raised(); !slices.Equal(got, []string{canaryAlarm}) {
		t.Fatal(got)
	}
}

func TestCanaryEndsWithItsWatchdog(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cfg.Canary = CanaryConfig{Address: "canary@example.test", Every: time.Hour, Late: time.Minute}
	requests := s.pipe(delivery.Sent, nil)
	ctx, stop := context.WithCancel(t.Context())
	flown := make(chan error, 1)
	go func() { flown <- s.canary(ctx) }()
	<-requests
	stop()
	if err := <-flown; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	duty, err := s.book.TakeDuty(t.Context(), canaryDuty, "another", time.Minute, time.Hour)
	if err != nil || duty == nil {
		t.Fatalf("the next one must wait: %v", err)
	}
}
