package watchdog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/ledger"
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
	LastID  string    `json:"last_id"` // of the message at Last
	At      time.Time `json:"at"`      // by the database's clock: letters until settleMargin before it have been compared
	Told    int       `json:"told"`    // letters that were published again
}

// reconcileLetters holds the stream of dead letters against the archive, which is the
// record, and publishes again the open letters that the stream lacks: those of the
// time since the last look, or all of them when the stream is another, has lost its
// end, or has another message where its end was. One instance at a time.
func (w *watchdog) reconcileLetters(ctx context.Context) error {
	duty, err := w.book.TakeDuty(ctx, lettersDuty, w.instance, dutyTerm, w.cfg.Reconcile)
	if err != nil || duty == nil {
		return err
	}
	seen, err := w.compareLetters(ctx, duty)
	if err != nil {
		return joinEnd(ctx, duty, nil, err)
	}
	return joinEnd(ctx, duty, seen, nil)
}

func (w *watchdog) compareLetters(ctx context.Context, duty *ledger.Duty) (mailbox, error) {
	now, err := w.mailbox(ctx)
	if err != nil {
		return now, err
	}
	var before mailbox
	if len(duty.Last) == 0 || json.Unmarshal(duty.Last, &before) != nil {
		return now, nil // there is nothing to compare with yet
	}
	since := before.At.Add(-2 * settleMargin)
	lost, err := w.lostSince(ctx, now, before)
	if err != nil {
		return now, err
	}
	if lost {
		since = time.Time{}
	}
	told, err := w.tellLetters(ctx, since, now.At.Add(-settleMargin), now.Last, func() error { return duty.Renew(ctx) })
	if err != nil {
		return now, err
	}
	if told > 0 {
		w.log.Error().Int("letters", told).Bool("lost_its_end", lost).Uint64("last", now.Last).Uint64("before", before.Last).
			Msg("the stream of dead letters lacked some; they were published again")
		at := now.At
		if now, err = w.mailbox(ctx); err != nil {
			return now, err
		}
		now.At = at
	}
	now.Told = told
	return now, nil
}

// lostSince tells whether the stream is another, or has lost its end.
func (w *watchdog) lostSince(ctx context.Context, now, before mailbox) (bool, error) {
	if !now.Created.Equal(before.Created) || now.Last < before.Last {
		return true, nil
	}
	if before.Last == 0 {
		return false, nil
	}
	id, err := w.letterAt(ctx, before.Last)
	return err == nil && id != "" && id != before.LastID, err
}

// letterAt is the id of the message at a sequence; empty: it was removed.
func (w *watchdog) letterAt(ctx context.Context, sequence uint64) (string, error) {
	s, err := w.js.Stream(ctx, streams.DeadLetter)
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", streams.DeadLetter, err)
	}
	m, err := s.GetMsg(ctx, sequence)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at %s: %w", streams.DeadLetter, err)
	}
	return m.Header.Get(bus.HeaderMsgID), nil
}

func (w *watchdog) mailbox(ctx context.Context) (m mailbox, err error) {
	if m.At, err = w.book.Now(ctx); err != nil {
		return m, err
	}
	s, err := w.js.Stream(ctx, streams.DeadLetter)
	if err != nil {
		return m, fmt.Errorf("look at %s: %w", streams.DeadLetter, err)
	}
	info := s.CachedInfo()
	m.Created, m.Last = info.Created.UTC(), info.State.LastSeq
	if m.Last > 0 {
		m.LastID, err = w.letterAt(ctx, m.Last)
	}
	return m, err
}

// tellLetters publishes what the stream lacks, up to its message last, of the letters
// archived from since until until.
func (w *watchdog) tellLetters(ctx context.Context, since, until time.Time, last uint64, alive func() error) (int, error) {
	var there map[string]bool
	told, after := 0, ""
	for {
		if err := alive(); err != nil {
			return told, err
		}
		page, err := w.book.OpenLetters(ctx, after, since, until, letterPage)
		if err != nil || len(page) == 0 {
			return told, err
		}
		if there == nil {
			if there, err = w.lettersOnStream(ctx, since, last); err != nil {
				return told, err
			}
		}
		var missing []*nats.Msg
		for _, l := range page {
			after = strings.TrimPrefix(l.ID, "dlq.")
			if !there[l.ID] {
				m := &nats.Msg{Subject: l.Subject, Data: l.Body, Header: nats.Header{}}
				m.Header.Set(bus.HeaderMsgID, l.ID+".again."+strconv.FormatUint(last, 10)) // within its window the stream still knows the first
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

// lettersOnStream lists the ids that the stream holds, of messages since then (zero:
// all) up to last.
func (w *watchdog) lettersOnStream(ctx context.Context, since time.Time, last uint64) (map[string]bool, error) {
	there := make(map[string]bool)
	cfg := jetstream.OrderedConsumerConfig{HeadersOnly: true, DeliverPolicy: jetstream.DeliverAllPolicy}
	if !since.IsZero() {
		start := since.Add(-clockSkew)
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &start
	}
	cons, err := w.js.OrderedConsumer(ctx, streams.DeadLetter, cfg)
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
		there[m.Headers().Get(bus.HeaderEventID)] = true
		meta, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("scan %s: %w", streams.DeadLetter, err)
		}
		if meta.Sequence.Stream >= last || meta.NumPending == 0 {
			return there, nil
		}
	}
}
