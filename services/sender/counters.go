package sender

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

// counters are the seed's two families and one for poison. No label carries an
// address or an id.
type counters struct {
	sent, failed, poisoned metric.Int64Counter
	rejections, changes    metric.Int64Counter
	open                   metric.Int64Gauge
}

func newCounters(m metric.Meter) (counters, error) {
	var c counters
	var e1, e2, e3, e4, e5, e6 error
	c.sent, e1 = m.Int64Counter("posthouse.message.sent", metric.WithDescription("The other side accepted a send."))
	c.failed, e2 = m.Int64Counter("posthouse.message.failed", metric.WithDescription("An attempt failed, by what follows."))
	c.poisoned, e3 = m.Int64Counter("posthouse.message.poison", metric.WithDescription("Requests that could not be read."))
	c.rejections, e4 = m.Int64Counter("posthouse.circuit_breaker.rejections", metric.WithDescription("Deliveries given back since their lane's circuit breaker was open."))
	c.changes, e5 = m.Int64Counter("posthouse.circuit_breaker.state_changes", metric.WithDescription("Changes of state of circuit breakers, by this instance."))
	c.open, e6 = m.Int64Gauge("posthouse.circuit_breaker.state", metric.WithDescription("0 closed, 1 half open, 2 open; as this instance last saw it change."))
	return c, errors.Join(e1, e2, e3, e4, e5, e6)
}

func (c counters) rejected(ctx context.Context, g breaker.Gate) {
	c.rejections.Add(ctx, 1, metric.WithAttributes(attribute.String("key", g.Key), attribute.String("state", string(g.State))))
}

func (c counters) turned(ctx context.Context, change breaker.Change) {
	key := attribute.String("key", change.To.Key)
	c.changes.Add(ctx, 1, metric.WithAttributes(key, attribute.String("state", string(change.To.State))))
	c.open.Record(ctx, map[breaker.State]int64{breaker.HalfOpen: 1, breaker.Open: 2}[change.To.State], metric.WithAttributes(key))
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
