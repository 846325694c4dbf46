package sender

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

// counters are the seed's two families and one for poison. No label carries an
// address or an id.
type counters struct {
	sent, failed, poisoned metric.Int64Counter
}

func newCounters(m metric.Meter) (counters, error) {
	var c counters
	var e1, e2, e3 error
	c.sent, e1 = m.Int64Counter("posthouse.message.sent", metric.WithDescription("The other side accepted a send."))
	c.failed, e2 = m.Int64Counter("posthouse.message.failed", metric.WithDescription("An attempt failed, by what follows."))
	c.poisoned, e3 = m.Int64Counter("posthouse.message.poison", metric.WithDescription("Requests that could not be read."))
	return c, errors.Join(e1, e2, e3)
}

func (c counters) settled(ctx context.Context, s ledger.Settlement) {
	channel := attribute.String("channel", string(s.Claimed.Channel))
	switch {
	case s.Decision.GiveBack:
	case s.Decision.State == delivery.Sent:
		c.sent.Add(ctx, 1, metric.WithAttributes(channel))
	default:
		c.failed.Add(ctx, 1, metric.WithAttributes(channel, attribute.String("outcome", string(s.Decision.State))))
	}
}

func (c counters) poison(ctx context.Context, channel string) {
	c.poisoned.Add(ctx, 1, metric.WithAttributes(attribute.String("channel", channel)))
}
