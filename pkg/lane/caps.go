package lane

import (
	"context"
	"fmt"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Slow halves what a lane may take, since the other side asked for it; why says
// how. False: it has been slowed within the last second, or can not go slower.
func (l *Lanes) Slow(ctx context.Context, id int32, why string) (View, bool, error) {
	return l.change(ctx, "slow", id, func(v View) *delivery.LaneEvent {
		e := event(v, delivery.LaneSlowed, "the other side throttles; "+describe(v))
		e.Cause = delivery.Bound(why)
		return e
	}, slow, delivery.Bound(why))
}

// Relieve doubles what a lane of this version may take; slots is what one instance
// takes of it otherwise. False: it has changed since.
func (l *Lanes) Relieve(ctx context.Context, id, version int32, slots int) (View, bool, error) {
	return l.change(ctx, "relieve", id, func(v View) *delivery.LaneEvent {
		e := event(v, delivery.LaneRaised, "sends succeed; "+describe(v))
		e.Cause = ""
		return e
	}, relieve, version, slots)
}

func describe(v View) string {
	switch {
	case v.Cap > 0 && v.RateCap > 0:
		return fmt.Sprintf("at most %d in work and %d a minute", v.Cap, v.RateCap)
	case v.Cap > 0:
		return fmt.Sprintf("at most %d in work", v.Cap)
	case v.RateCap > 0:
		return fmt.Sprintf("at most %d a minute", v.RateCap)
	}
	return "as configured again"
}

// Limits of a real account, over all instances; 0: none.
type Limits struct {
	PerMinute   int
	Daily       int
	MaxInFlight int
}

// Configure gives a lane its limits, as the configuration of the caller says. It
// tells whether they were others before.
func (l *Lanes) Configure(ctx context.Context, id int32, limits Limits) (bool, error) {
	tag, err := l.db.Exec(ctx, configure, id, orNull(limits.PerMinute), orNull(limits.Daily), orNull(limits.MaxInFlight))
	if err != nil {
		return false, fmt.Errorf("limits of lane %d: %w", id, err)
	}
	return tag.RowsAffected() > 0, nil
}

func orNull(n int) *int {
	if n <= 0 {
		return nil
	}
	return &n
}
