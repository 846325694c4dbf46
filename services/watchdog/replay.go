package watchdog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/streams"
)

const (
	replayDuty    = "replay"
	replayCheck   = 5 * time.Second
	countPatience = 5 * time.Second
	longestBy     = 100 // bytes
)

// replays publishes what people have asked for, one replay after the other, on one
// instance at a time. What a crash leaves is taken up where the row says; the page
// that was under way goes out again under the same ids, which the stream drops.
func (w *watchdog) replays(ctx context.Context) error {
	next, err := w.book.NextReplay(ctx)
	if err != nil || next == nil {
		return err
	}
	duty, err := w.book.TakeDuty(ctx, replayDuty, w.instance, dutyTerm, 0)
	if err != nil || duty == nil {
		return err
	}
	for err == nil {
		if next, err = w.book.NextReplay(ctx); err != nil || next == nil {
			break
		}
		if err = w.replay(ctx, next, func() error { return duty.Renew(ctx) }); err != nil && ctx.Err() == nil {
			err = errors.Join(fmt.Errorf("replay %s: %w", next.ID, err), w.book.BlameReplay(ctx, *next.ID, err.Error()))
		}
	}
	return joinEnd(ctx, duty, nil, err)
}

// replay publishes one replay stretch by stretch. Its ids are its own, so that no
// event is swallowed as a repeat of its first publication; consumers know it by its
// event id.
func (w *watchdog) replay(ctx context.Context, r *delivery.Replay, alive func() error) error {
	if err := w.book.SummarizeEvents(ctx); err != nil {
		w.log.Debug().Err(err).Msg("the replay will be slower")
	}
	out := w.republisher()
	walk := stretches{book: w.book, which: ledger.Which{Tenant: r.Tenant, State: r.State}, next: r.Reached, until: r.Until}
	for reached := r.Reached; ; reached = walk.next {
		events, done, err := walk.take(ctx)
		if err != nil {
			return err
		}
		if done {
			return nil
		}
		keys := make([]ledger.EventKey, len(events))
		for i, e := range events {
			keys[i] = e.EventKey
		}
		n, err := out.publish(ctx, keys, func(e ledger.BookedEvent) string { return e.String() + "." + r.ID.String() }, alive)
		w.count.replayed.Add(ctx, n)
		if err != nil {
			return err
		}
		if err := alive(); err != nil {
			return err
		}
		moved, err := w.book.AdvanceReplay(ctx, *r.ID, reached, walk.next, n)
		if err != nil {
			return err
		}
		if !moved { // cancelled, or somebody else's
			return nil
		}
		if !walk.next.Before(walk.until) {
			w.log.Info().Stringer("replay", r.ID).Str("by", r.By).Time("since", r.Since).Time("until", r.Until).Msg("events published again")
		}
	}
}

// askReplay answers posthouse.ops.watchdog.replay.
func (w *watchdog) askReplay(ctx context.Context, req bus.Request) (any, error) {
	var ask delivery.ReplayRequest
	if err := req.Decode(&ask); err != nil {
		return nil, err
	}
	now, err := w.book.Now(ctx)
	if err != nil {
		return nil, err
	}
	r := delivery.Replay{Since: ask.Since, Until: now, Tenant: ask.Tenant, State: ask.State, By: ask.By, Status: "dry_run", Reached: ask.Since}
	if ask.Until != nil && ask.Until.Before(now) {
		r.Until = *ask.Until
	}
	switch {
	case ask.Since.IsZero() || !r.Since.Before(r.Until):
		return nil, &bus.Error{Code: "400", Text: "since must be a time before until and before now"}
	case ask.By == "" || len(ask.By) > longestBy:
		return nil, &bus.Error{Code: "400", Text: fmt.Sprintf("by must say who asks, in at most %d bytes", longestBy)}
	case ask.Tenant != "" && !streams.Token(ask.Tenant):
		return nil, &bus.Error{Code: "400", Text: "tenant must be of [A-Za-z0-9_-]"}
	case ask.State != "" && !streams.Token(ask.State):
		return nil, &bus.Error{Code: "400", Text: "state must be a state of a delivery, such as sent"}
	}
	counting, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	n, err := w.book.CountEvents(counting, r.Since, r.Until, ledger.Which{Tenant: r.Tenant, State: r.State})
	switch {
	case err == nil:
		r.Total = &n
	case counting.Err() == nil || ctx.Err() != nil:
		return nil, err
	}
	if ask.DryRun {
		return r, nil
	}
	added, err := w.book.AddReplay(ctx, r)
	if err != nil {
		return nil, err
	}
	w.log.Warn().Stringer("replay", added.ID).Str("by", r.By).Time("since", r.Since).Time("until", r.Until).Str("tenant", r.Tenant).Str("state", r.State).Msg("events will be published again")
	select {
	case w.asked <- struct{}{}:
	default:
	}
	return added, nil
}

// showReplays answers posthouse.ops.watchdog.replays.
func (w *watchdog) showReplays(ctx context.Context, req bus.Request) (any, error) {
	var ask delivery.ReplayLookup
	if err := req.Decode(&ask); err != nil {
		return nil, err
	}
	if ask.ID == "" {
		return w.book.Replays(ctx, 50)
	}
	r, err := w.findReplay(ctx, ask.ID)
	if err != nil {
		return nil, err
	}
	return []delivery.Replay{*r}, nil
}

// stopReplay answers posthouse.ops.watchdog.replay-cancel.
func (w *watchdog) stopReplay(ctx context.Context, req bus.Request) (any, error) {
	var ask delivery.ReplayLookup
	if err := req.Decode(&ask); err != nil {
		return nil, err
	}
	r, err := w.findReplay(ctx, ask.ID)
	if err != nil {
		return nil, err
	}
	stopped, err := w.book.CancelReplay(ctx, *r.ID)
	if err != nil {
		return nil, err
	}
	if !stopped {
		return nil, &bus.Error{Code: "409", Text: "it does not run any more: it is " + r.Status}
	}
	w.log.Warn().Stringer("replay", r.ID).Msg("replay cancelled")
	return w.book.Replay(ctx, *r.ID)
}

func (w *watchdog) findReplay(ctx context.Context, text string) (*delivery.Replay, error) {
	id, err := delivery.ParseID(text)
	if err != nil {
		return nil, &bus.Error{Code: "400", Text: "id must be that of a replay"}
	}
	r, err := w.book.Replay(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, &bus.Error{Code: "404", Text: "there is no such replay"}
	}
	return r, err
}
