package deadletter

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/streams"
)

// operations answers on posthouse.ops.dead-letter.*.
func operations(book *ledger.Ledger, log zerolog.Logger) bus.Service {
	return bus.Service{Name: "posthouse-dead-letter", Version: "1.1.0", Description: "the dead-letter archive", Log: log, Endpoints: []bus.Endpoint{{
		Name: "list", Subject: streams.Ops("dead-letter", "list"), Description: "dead letters, newest first",
		Handle: func(ctx context.Context, req bus.Request) (any, error) {
			var filter delivery.LetterFilter
			if err := req.Decode(&filter); err != nil {
				return nil, err
			}
			return book.DeadLetters(ctx, filter)
		}}, {
		Name: "triage", Subject: streams.Ops("dead-letter", "triage"), Description: "mark letters as resolved or discarded, with a remark; sends nothing again",
		Handle: func(ctx context.Context, req bus.Request) (any, error) {
			var c delivery.TriageCommand
			if err := req.Decode(&c); err != nil {
				return nil, err
			}
			if err := c.Check(); err != nil {
				return nil, &bus.Error{Code: "400", Text: err.Error()}
			}
			return book.Triage(ctx, c)
		}}}}
}
