package watchdog

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/streams"
)

const (
	reconcileDuty  = "reconcile"
	dutyTerm       = time.Minute
	settleMargin   = 2 * time.Minute  // events younger than this are the relay's, not ours
	lateCommit     = 15 * time.Minute // a transaction may become visible so long after its events' time
	clockSkew      = 10 * time.Minute // between the two servers
	lead           = time.Minute      // how far the book is read ahead of the stream
	ageMargin      = time.Hour        // what the stream is about to let go of is not asked for
	gapWidth       = 5 * time.Minute
	lookUpPage     = 500
	mostUnknownIDs = 20
	mostGaps       = 100
)

// mostMissing bounds the memory of one comparison: with more than so many events
// booked and not seen, the stretch ends there and the next one goes on.
const mostMissing = 200_000

// reconciler compares the event table with the event stream and publishes again
// what the stream lacks.
//
// It compares ids, not counts or checksums of them: the stream may rightly hold an
// event twice (a relay that died between acknowledgement and removal, a replay),
// and what is counted twice here would hide what is missing there. Both sides are
// read in order of time, so that only what the relay has under way is in memory.
//
// An event is missing when it is booked, not in the outbox, and not among the
// messages up to a sequence that was read after the outbox: a row leaves the outbox
// only when its messages are acknowledged.
type reconciler struct {
	log    zerolog.Logger
	book   *ledger.Ledger
	js     jetstream.JetStream
	out    republisher
	margin time.Duration
	most   int // see mostMissing
}

func newReconciler(log zerolog.Logger, book *ledger.Ledger, js jetstream.JetStream, out republisher) *reconciler {
	return &reconciler{log: log, book: book, js: js, out: out, margin: settleMargin, most: mostMissing}
}

// run compares what was booked since the last time; everything that the stream
// should hold when the stream is another or has lost its end since. last is the
// result of the last time, nil for none; alive keeps the lease. What it returns
// beside an error is what was done until then.
func (r *reconciler) run(ctx context.Context, last json.RawMessage, alive func() error) (*delivery.Reconciliation, error) {
	began, sum := time.Now(), &delivery.Reconciliation{}
	if err := r.book.SummarizeEvents(ctx); err != nil {
		r.log.Debug().Err(err).Msg("the comparison will be slower")
	}
	info, err := r.stream(ctx)
	if err != nil {
		return sum, err
	}
	now, err := r.book.Now(ctx)
	if err != nil {
		return sum, err
	}
	var before delivery.Reconciliation
	if last != nil {
		if err := json.Unmarshal(last, &before); err != nil {
			return sum, fmt.Errorf("result of the last comparison: %w", err)
		}
	}
	sum.To = now.Add(-r.margin)
	sum.Complete = before.To.IsZero() || !before.StreamCreated.Equal(info.Created) || info.State.LastSeq < before.StreamLast
	oldest := now.Add(ageMargin - info.Config.MaxAge)
	if info.Config.MaxAge == 0 {
		oldest = time.UnixMilli(0)
	}
	sum.From = oldest
	if from := before.To.Add(-lateCommit); !sum.Complete && from.After(oldest) {
		sum.From = from
	}
	epoch := strconv.FormatInt(now.UnixMilli(), 36)
	doubt := now.Add(-2 * info.Config.Duplicates)
	gaps := make(map[time.Time]int64)
	for from := sum.From; from.Before(sum.To); {
		c := &comparison{reconciler: r, sum: sum, alive: alive, expected: make(map[ledger.EventKey]time.Time), early: make(map[ledger.EventKey]bool)}
		missing, reached, err := c.compare(ctx, from, sum.To)
		if err != nil {
			return sum, err
		}
		for _, e := range missing {
			gaps[e.At.UTC().Truncate(gapWidth)]++
		}
		sum.Missing += int64(len(missing))
		keys := make([]ledger.EventKey, len(missing))
		for i, e := range missing {
			keys[i] = e.EventKey
		}
		// Inside the window the stream may still know the id of a message that it
		// no longer has, and would take the same id for a repeat.
		published, err := r.out.publish(ctx, keys, func(e ledger.BookedEvent) string {
			if e.At.After(doubt) {
				return e.String() + ".r" + epoch
			}
			return e.String()
		}, alive)
		sum.Repaired += published
		if err != nil {
			return sum, fmt.Errorf("repaired %d of %d missing events: %w", sum.Repaired, sum.Missing, err)
		}
		from = reached
	}
	for _, at := range slices.SortedFunc(maps.Keys(gaps), time.Time.Compare) {
		if len(sum.Gaps) < mostGaps {
			sum.Gaps = append(sum.Gaps, delivery.Gap{At: at, Missing: gaps[at]})
		}
	}
	if info, err = r.stream(ctx); err != nil {
		return sum, err
	}
	sum.StreamCreated, sum.StreamLast = info.Created, info.State.LastSeq
	sum.Seconds, sum.FinishedAt = time.Since(began).Seconds(), time.Now().UTC()
	return sum, nil
}

func (r *reconciler) stream(ctx context.Context) (*jetstream.StreamInfo, error) {
	s, err := r.js.Stream(ctx, streams.Events)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", streams.Events, err)
	}
	return s.CachedInfo(), nil
}

// comparison is one walk along both sides.
type comparison struct {
	*reconciler

	sum      *delivery.Reconciliation
	alive    func() error
	booked   stretches
	from     time.Time
	expected map[ledger.EventKey]time.Time // booked and not seen in the stream yet
	early    map[ledger.EventKey]bool      // seen, but booked later than the book has been read
	strange  []ledger.EventKey             // seen and not expected: to be looked up
	renewed  time.Time
}

// compare returns what is missing, oldest first, among the events booked from one
// moment to another or to where it had to stop.
func (c *comparison) compare(ctx context.Context, from, to time.Time) (missing []ledger.BookedEvent, reached time.Time, err error) {
	c.from, c.booked = from, stretches{book: c.book, next: from, until: to}
	info, err := c.stream(ctx)
	if err != nil {
		return nil, from, err
	}
	if info.State.Msgs > 0 {
		err := scanEvents(ctx, c.js, scanStart{at: from.Add(-clockSkew)}, info.State.LastSeq, func(t told) error { return c.see(ctx, t) })
		if err != nil {
			return nil, from, err
		}
	}
	if err := c.read(ctx, to); err != nil {
		return nil, from, err
	}
	if err := c.lookUp(ctx); err != nil {
		return nil, from, err
	}
	if err := c.excuse(ctx, info.State.LastSeq); err != nil {
		return nil, from, err
	}
	for k, at := range c.expected {
		missing = append(missing, ledger.BookedEvent{EventKey: k, At: at})
	}
	slices.SortFunc(missing, func(a, b ledger.BookedEvent) int {
		if d := a.At.Compare(b.At); d != 0 {
			return d
		}
		return int(a.Version - b.Version)
	})
	return missing, c.booked.next, nil
}

// read reads the book until a moment, or until too much is missing.
func (c *comparison) read(ctx context.Context, until time.Time) error {
	for c.booked.next.Before(until) && len(c.expected) < c.most {
		events, done, err := c.booked.take(ctx)
		if err != nil || done {
			return err
		}
		c.sum.Booked += int64(len(events))
		for _, e := range events {
			if c.early[e.EventKey] {
				delete(c.early, e.EventKey)
				continue
			}
			c.expected[e.EventKey] = e.At
		}
		if err := c.keep(); err != nil {
			return err
		}
	}
	if len(c.expected) >= c.most { // the stretch ends here; the next comparison goes on
		c.booked.until = c.booked.next
	}
	return nil
}

// keep renews the lease now and then.
func (c *comparison) keep() error {
	if time.Since(c.renewed) < dutyTerm/6 {
		return nil
	}
	c.renewed = time.Now()
	return c.alive()
}

// see takes one message of the stream off the list.
func (c *comparison) see(ctx context.Context, t told) error {
	if err := c.read(ctx, t.at.Add(lead)); err != nil {
		return err
	}
	key, ok := t.key()
	if !ok {
		c.unknown(t.id)
		return nil
	}
	if _, ok := c.expected[key]; ok {
		delete(c.expected, key)
		return nil
	}
	if c.strange = append(c.strange, key); len(c.strange) < lookUpPage {
		return nil
	}
	if err := c.keep(); err != nil {
		return err
	}
	return c.lookUp(ctx)
}

// lookUp asks the book about messages that were not expected: repeats, events from
// before or after the stretch, or such that nobody has booked.
func (c *comparison) lookUp(ctx context.Context) error {
	if len(c.strange) == 0 {
		return nil
	}
	known, err := c.book.EventTimes(ctx, c.strange)
	if err != nil {
		return err
	}
	for _, k := range c.strange {
		at, ok := known[k]
		_, waits := c.expected[k]
		switch {
		case !ok:
			c.unknown(k.String())
		case waits: // it was read meanwhile
			delete(c.expected, k)
		case at.Before(c.from) || !at.Before(c.booked.until):
		case !at.Before(c.booked.next):
			c.early[k] = true
		default:
			c.sum.Repeats++
		}
	}
	c.strange = c.strange[:0]
	return nil
}

func (c *comparison) unknown(id string) {
	c.sum.Unknown++
	if id = delivery.Bound(id); len(c.sum.UnknownIDs) < mostUnknownIDs && !slices.Contains(c.sum.UnknownIDs, id) {
		c.sum.UnknownIDs = append(c.sum.UnknownIDs, id)
	}
}

// excuse takes off what is in the outbox still, and then what has been published
// since the scan began.
func (c *comparison) excuse(ctx context.Context, scanned uint64) error {
	if len(c.expected) == 0 {
		return nil
	}
	pending, err := c.book.EventsInOutbox(ctx, slices.Collect(maps.Keys(c.expected)))
	if err != nil {
		return err
	}
	for _, k := range pending {
		delete(c.expected, k)
		c.sum.Pending++
	}
	info, err := c.stream(ctx)
	if err != nil || info.State.LastSeq <= scanned || len(c.expected) == 0 {
		return err
	}
	return scanEvents(ctx, c.js, scanStart{sequence: scanned + 1}, info.State.LastSeq, func(t told) error {
		if k, ok := t.key(); ok {
			delete(c.expected, k)
		}
		return nil
	})
}

// reconcile is the duty: one instance at a time, once per period.
func (w *watchdog) reconcile(ctx context.Context) error {
	duty, err := w.book.TakeDuty(ctx, reconcileDuty, w.instance, dutyTerm, w.cfg.Reconcile)
	if err != nil || duty == nil {
		return err
	}
	r := newReconciler(w.log, w.book, w.js, w.republisher())
	result, err := r.run(ctx, duty.Last, func() error { return duty.Renew(ctx) })
	w.count.reconciled(ctx, result)
	if err != nil {
		return joinEnd(ctx, duty, nil, fmt.Errorf("compare the event stream with the book: %w", err))
	}
	line := w.log.Info()
	if result.Missing > 0 || result.Unknown > 0 {
		line = w.log.Error()
	}
	line.Time("from", result.From).Time("to", result.To).Int64("booked", result.Booked).Int64("missing", result.Missing).Int64("repaired", result.Repaired).
		Int64("pending", result.Pending).Int64("repeats", result.Repeats).Int64("unknown", result.Unknown).Strs("unknown_ids", result.UnknownIDs).
		Float64("seconds", result.Seconds).Msg("the event stream was compared with the book")
	return joinEnd(ctx, duty, result, nil)
}
