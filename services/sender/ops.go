package sender

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/streams"
)

// operations answers "where is it?" on posthouse.ops.sender.*.
func operations(book *ledger.Ledger, log zerolog.Logger) bus.Service {
	return bus.Service{Name: "posthouse-sender", Version: "1.0.0", Description: "status of deliveries", Log: log, Endpoints: []bus.Endpoint{{
		Name: "status", Subject: streams.Ops("sender", "status"), Description: "all that is known of one delivery, and what holds it",
		Handle: func(ctx context.Context, req bus.Request) (any, error) {
			var ask delivery.Lookup
			if err := req.Decode(&ask); err != nil {
				return nil, err
			}
			if ask.ID == "" {
				return nil, &bus.Error{Code: "400", Text: "id is empty: give a delivery id, or the client's id and its tenant"}
			}
			id, err := book.Find(ctx, ask.Tenant, ask.ID)
			if err == nil {
				var s *delivery.Status
				if s, err = book.Status(ctx, id); err == nil && ask.Tenant != "" && s.Tenant != ask.Tenant {
					err = ledger.ErrNotFound
				} else if err == nil {
					return s, nil
				}
			}
			if errors.Is(err, ledger.ErrNotFound) {
				return nil, &bus.Error{Code: "404", Text: "no such delivery; a client's id is found with its tenant only"}
			}
			return nil, err
		}}}}
}
