package sender

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/streams"
)

// conflictError says that a client's id was used before for something else.
type conflictError struct{ first delivery.ID }

func (e *conflictError) Error() string {
	return fmt.Sprintf("this id was accepted before with another body, as delivery %s", e.first)
}

// poison archives a request that never can be accepted, as it came, and takes it
// off the stream once that is stored. Its neighbours are not affected.
func (in *intake) poison(ctx context.Context, m jetstream.Msg, why error) {
	d := ledger.DeadLetter{Subject: m.Subject(), Headers: m.Headers(), Raw: m.Data(),
		Letter: delivery.Letter{EventID: "poison." + bus.Fingerprint(m), Source: string(streams.Poison), Channel: streams.None, Tenant: streams.None, Code: "MALFORMED",
			Reason: delivery.Bound(why.Error())}}
	if channel, tenant, err := streams.ParseSend(m.Subject()); err == nil {
		d.Channel, d.Tenant = channel, tenant
	}
	var conflict *conflictError
	if errors.As(why, &conflict) {
		d.Code, d.ID = "CONFLICT", &conflict.first
	}
	err := in.insist(ctx, []jetstream.Msg{m}, func() error {
		events, err := in.book.Archive(ctx, []ledger.DeadLetter{d})
		if err == nil {
			in.hand(events)
		}
		return err
	})
	if err != nil {
		return // not archived: it comes again
	}
	in.log.Warn().Str("subject", m.Subject()).Str("code", d.Code).Str("reason", d.Reason).Msg("poison request archived")
	in.count.poison(ctx, d.Channel)
	if err := m.TermWithReason(d.Reason); err != nil {
		in.log.Debug().Err(err).Msg("termination not sent; the request comes again and is known")
	}
}
