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
	return bus.Service{Name: "posthouse-dead-letter", Version: "1.0.0", Description: "the dead-letter archive", Log: log, Endpoints: []bus.Endpoint{{
		Name: "list", Subject: streams.Ops("dead-letter", "list"), Description: "dead letters, newest first",
		Handle: func(ctx context.Context, req bus.Request) (any, error) {
			var filter delivery.LetterFilter
			if err := req.Decode(&filter); err != nil {
				return nil, err
			}
			return book.DeadLetters(ctx, filter)
		}}}}
}
