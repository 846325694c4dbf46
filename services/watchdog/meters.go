package watchdog

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// meters are what the watchdog counts. The only label is the name of an alarm.
type meters struct {
	missing, repaired, unknown, replayed metric.Int64Counter
	lag                                  metric.Float64Gauge
	raised                               metric.Int64Gauge
	canary                               metric.Float64Histogram
	canaries                             metric.Int64Counter
}

func newMeters(m metric.Meter) (c meters, err error) {
	var errs [8]error
	c.missing, errs[0] = m.Int64Counter("posthouse.reconcile.missing", metric.WithDescription("Booked events that the event stream lacked."))
	c.repaired, errs[1] = m.Int64Counter("posthouse.reconcile.repaired", metric.WithDescription("Of these, published again."))
	c.unknown, errs[2] = m.Int64Counter("posthouse.reconcile.unknown", metric.WithDescription("Messages of the event stream that name no booked event."))
	c.replayed, errs[3] = m.Int64Counter("posthouse.replay.published", metric.WithDescription("Events published again because a person asked for it."))
	c.lag, errs[4] = m.Float64Gauge("posthouse.lag", metric.WithDescription("What each alarm looks at, in its unit."))
	c.raised, errs[5] = m.Int64Gauge("posthouse.alarm.raised", metric.WithDescription("1 while the alarm is raised."))
	c.canary, errs[6] = m.Float64Histogram("posthouse.canary.duration", metric.WithUnit("s"), metric.WithDescription("From publishing the canary's request to its final event."))
	c.canaries, errs[7] = m.Int64Counter("posthouse.canary.late", metric.WithDescription("Canaries that were late or not sent."))
	return c, errors.Join(errs[:]...)
}

func (c meters) reconciled(ctx context.Context, r *delivery.Reconciliation) {
	c.missing.Add(ctx, r.Missing)
	c.repaired.Add(ctx, r.Repaired)
	c.unknown.Add(ctx, r.Unknown)
}

func (c meters) read(ctx context.Context, r reading, raised bool) {
	name := metric.WithAttributes(attribute.String("alarm", r.name))
	c.lag.Record(ctx, r.value, name)
	n := int64(0)
	if raised {
		n = 1
	}
	c.raised.Record(ctx, n, name)
}
