package watchdog

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/streams"
)

// scanStall is how long a scan waits for the next message before it gives up.
const scanStall = 30 * time.Second

// told is one message of the event stream, without its body.
type told struct {
	id string // of the event
	at time.Time
}

// key reads the event's id; false: it is none of ours.
func (t told) key() (ledger.EventKey, bool) {
	id, version, err := delivery.ParseEventID(t.id)
	if err != nil || version > 1<<31-1 {
		return ledger.EventKey{}, false
	}
	return ledger.EventKey{Aggregate: id, Version: int32(version)}, true
}

// scanStart is where a scan begins: at a time, or at a sequence when that is given.
type scanStart struct {
	at       time.Time
	sequence uint64
}

// scanEvents reads the headers of the event stream in order, from start to the
// message with sequence last, and returns then. It sees the kinds that the event
// table holds; alerts are no part of the book.
func scanEvents(ctx context.Context, js jetstream.JetStream, start scanStart, last uint64, each func(told) error) error {
	cfg := jetstream.OrderedConsumerConfig{HeadersOnly: true, DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &start.at,
		FilterSubjects: []string{streams.EventsOf(streams.KindDelivery, ""), streams.EventsOf(streams.KindDocument, "")}}
	if start.sequence > 0 {
		cfg.DeliverPolicy, cfg.OptStartTime, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, nil, start.sequence
	}
	cons, err := js.OrderedConsumer(ctx, streams.Events, cfg)
	if err != nil {
		return fmt.Errorf("scan %s: %w", streams.Events, err)
	}
	if info := cons.CachedInfo(); info != nil && info.NumPending == 0 && info.Delivered.Consumer == 0 {
		return nil
	}
	messages, err := cons.Messages()
	if err != nil {
		return fmt.Errorf("scan %s: %w", streams.Events, err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		m, err := messages.Next(jetstream.NextMaxWait(scanStall))
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("scan %s: %w", streams.Events, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("scan %s: %w", streams.Events, err)
		}
		if meta.Sequence.Stream > last {
			return nil
		}
		if err := each(told{id: m.Headers().Get(bus.HeaderEventID), at: meta.Timestamp}); err != nil {
			return err
		}
		if meta.Sequence.Stream == last || meta.NumPending == 0 {
			return nil
		}
	}
}

// stretches walks from one moment to another in steps that hold some thousand
// events each: short ones where much happened, long ones where nothing did.
type stretches struct {
	book  *ledger.Ledger
	which ledger.Which
	next  time.Time
	until time.Time
	step  time.Duration
}

const (
	firstStep    = 5 * time.Second
	shortestStep = 100 * time.Millisecond
	longestStep  = 6 * time.Hour
	fewEvents    = 1000
	manyEvents   = 10000
)

// take lists the events of the next stretch; done when there is none left.
func (s *stretches) take(ctx context.Context) (events []ledger.BookedEvent, done bool, err error) {
	if !s.next.Before(s.until) {
		return nil, true, nil
	}
	if s.step == 0 {
		s.step = firstStep
	}
	end := s.next.Add(s.step)
	if end.After(s.until) {
		end = s.until
	}
	events, err = s.book.EventsBetween(ctx, s.next, end, s.which)
	if err != nil {
		return nil, false, err
	}
	s.next = end
	switch {
	case len(events) < fewEvents:
		s.step = min(2*s.step, longestStep)
	case len(events) > manyEvents:
		s.step = max(s.step/2, shortestStep)
	}
	return events, false, nil
}
