package watchdog

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/streams"
)

const (
	lettersDuty = "letters"
	letterPage  = 500
)

// mailbox is how the stream of dead letters stood when it was last looked at.
type mailbox struct {
	Created time.Time `json:"created"`
	Last    uint64    `json:"last"`
	Told    int       `json:"told"` // letters that were published again
}

// lostSince tells whether the stream is another, or has lost its end.
func (m mailbox) lostSince(before mailbox) bool {
	return !m.Created.Equal(before.Created) || m.Last < before.Last
}

// reconcileLetters notices that the stream of dead letters was lost, or restored from
// an older state, and publishes again the open letters that it lacks: the archive is
// the record. One instance at a time.
func (w *watchdog) reconcileLetters(ctx context.Context) error {
	duty, err := w.book.TakeDuty(ctx, lettersDuty, w.instance, dutyTerm, w.cfg.Reconcile)
	if err != nil || duty == nil {
		return err
	}
	now, err := w.mailbox(ctx)
	if err != nil {
		return joinEnd(ctx, duty, nil, err)
	}
	var before mailbox
	if len(duty.Last) > 0 && json.Unmarshal(duty.Last, &before) == nil && now.lostSince(before) {
		now.Told, err = w.tellLetters(ctx, now.Last, func() error { return duty.Renew(ctx) })
		if err != nil {
			return joinEnd(ctx, duty, nil, err)
		}
		w.log.Warn().Int("letters", now.Told).Uint64("last", now.Last).Uint64("before", before.Last).
			Msg("the stream of dead letters had lost some; they were published again")
		again, err := w.mailbox(ctx)
		if err != nil {
			return joinEnd(ctx, duty, nil, err)
		}
		now.Created, now.Last = again.Created, again.Last
	}
	return joinEnd(ctx, duty, now, nil)
}

func (w *watchdog) mailbox(ctx context.Context) (mailbox, error) {
	s, err := w.js.Stream(ctx, streams.DeadLetter)
	if err != nil {
		return mailbox{}, fmt.Errorf("look at %s: %w", streams.DeadLetter, err)
	}
	info := s.CachedInfo()
	return mailbox{Created: info.Created.UTC(), Last: info.State.LastSeq}, nil
}

// tellLetters publishes what the stream lacks up to the message last.
func (w *watchdog) tellLetters(ctx context.Context, last uint64, alive func() error) (int, error) {
	there, err := w.lettersOnStream(ctx, last)
	if err != nil {
		return 0, err
	}
	told, after := 0, ""
	for {
		if err := alive(); err != nil {
			return told, err
		}
		page, err := w.book.OpenLetters(ctx, after, letterPage)
		if err != nil || len(page) == 0 {
			return told, err
		}
		var missing []*nats.Msg
		for _, l := range page {
			after = strings.TrimPrefix(l.ID, "dlq.")
			if !there[l.ID] {
				m := &nats.Msg{Subject: l.Subject, Data: l.Body, Header: nats.Header{}}
				m.Header.Set(bus.HeaderMsgID, l.ID)
				m.Header.Set(bus.HeaderEventID, l.ID)
				missing = append(missing, m)
			}
		}
		if len(missing) == 0 {
			continue
		}
		result := w.bus.Publish(ctx, missing)
		told += len(missing) - len(result.Failed)
		for _, err := range result.Failed { // one says enough
			return told, fmt.Errorf("publish letters again: %d of %d not acknowledged: %w", len(result.Failed), len(missing), err)
		}
	}
}

// lettersOnStream lists the ids that the stream holds.
func (w *watchdog) lettersOnStream(ctx context.Context, last uint64) (map[string]bool, error) {
	there := make(map[string]bool)
	cons, err := w.js.OrderedConsumer(ctx, streams.DeadLetter, jetstream.OrderedConsumerConfig{HeadersOnly: true, DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return nil, fmt.Errorf("scan %s: %w", streams.DeadLetter, err)
	}
	if info := cons.CachedInfo(); info != nil && info.NumPending == 0 && info.Delivered.Consumer == 0 {
		return there, nil
	}
	messages, err := cons.Messages()
	if err != nil {
		return nil, fmt.Errorf("scan %s: %w", streams.DeadLetter, err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		m, err := messages.Next(jetstream.NextMaxWait(scanStall))
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, fmt.Errorf("scan %s: %w", streams.DeadLetter, err)
		}
		there[m.Headers().Get(bus.HeaderMsgID)] = true
		meta, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("scan %s: %w", streams.DeadLetter, err)
		}
		if meta.Sequence.Stream >= last || meta.NumPending == 0 {
			return there, nil
		}
	}
}
