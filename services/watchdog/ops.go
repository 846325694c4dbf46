package watchdog

import (
	"context"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// operations answers on posthouse.ops.watchdog.*.
func (w *watchdog) operations() bus.Service {
	endpoint := func(verb, description string, handle func(context.Context, bus.Request) (any, error)) bus.Endpoint {
		return bus.Endpoint{Name: verb, Subject: streams.Ops("watchdog", verb), Description: description, Handle: handle}
	}
	return bus.Service{Name: "posthouse-watchdog", Version: "1.0.0", Description: "alarms, the event stream compared with the book, replays", Log: w.log, Endpoints: []bus.Endpoint{
		endpoint("alarms", "every alarm that was ever raised, and whether it still is", func(ctx context.Context, _ bus.Request) (any, error) { return w.book.Alarms(ctx) }),
		endpoint("reconciliation", "what the last comparison of the event stream with the book found", func(ctx context.Context, _ bus.Request) (any, error) {
			var last delivery.Reconciliation
			done, err := w.book.LastDuty(ctx, reconcileDuty, &last)
			if err == nil && !done {
				return nil, &bus.Error{Code: "404", Text: "the event stream has not been compared with the book yet"}
			}
			return last, err
		}),
		endpoint("replay", "publish events of the book again, or count them first", w.askReplay),
		endpoint("replays", "where replays stand", w.showReplays),
		endpoint("replay-cancel", "stop a replay", w.stopReplay),
	}}
}
