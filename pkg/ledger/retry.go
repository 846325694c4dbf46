package ledger

import (
	"context"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// PrepareLane is the lane of deliveries that are to be prepared before they can
// be sent; a sender moves them on to their real one.
const PrepareLane = "prepare"

// Retry puts deliveries back into the queue, due at once, by the rules of the
// seed's section "Manual retry": what waits or has failed may be retried, what
// was sent or is being sent may not; it counts as one retry; what was never
// prepared is prepared afresh; what is due already is left alone, so that
// pressing again is safe.
func (l *Ledger) Retry(ctx context.Context, c delivery.RetryCommand) (Carried, error) {
	lane, err := l.Lane(ctx, PrepareLane, "delivery")
	if err != nil {
		return Carried{}, err
	}
	return l.command(ctx, retryOrder(lane, c.Warrant, c.Expiry), c.IDs)
}

// retryOrder sends the unprepared to the given lane.
func retryOrder(lane int32, w delivery.Warrant, e delivery.Expiry) order {
	return order{action: "retry", to: delivery.Retry, warrant: w, expiry: e, lane: lane,
		turn:  [2]delivery.RecipientState{delivery.RecipientRefused, delivery.RecipientPending}, // whoever accepted is not sent to again
		judge: func(s subject) delivery.Effect { return mayRetry(s, e) }}
}

func mayRetry(s subject, e delivery.Expiry) delivery.Effect {
	switch {
	case s.queue == "leased":
		return delivery.EffectInWork
	case s.state == delivery.Sent:
		return delivery.EffectSent
	case !delivery.Legal(s.state, delivery.Retry):
		return delivery.EffectFinal
	case (s.expired || s.state == delivery.Expired) && !e.Changes(), e.ExpiresAt != nil && !e.ExpiresAt.After(time.Now()):
		return delivery.EffectExpired
	case s.due && s.queue != "held" && !s.expired:
		return delivery.EffectDue
	case s.recipients > 0 && len(s.waiting)+len(s.refused) == 0:
		return delivery.EffectNoTarget
	}
	return delivery.EffectQueued
}

// CancelAll calls deliveries back that wait and are not in work.
func (l *Ledger) CancelAll(ctx context.Context, c delivery.CancelCommand) (Carried, error) {
	return l.command(ctx, cancelOrder(c.Warrant), c.IDs)
}

func cancelOrder(w delivery.Warrant) order {
	return order{action: "cancel", to: delivery.Cancelled, warrant: w, answer: &delivery.Answer{Code: "CANCELLED", Text: delivery.Bound(w.Why)},
		judge: func(s subject) delivery.Effect {
			switch {
			case s.queue == "leased":
				return delivery.EffectInWork
			case s.state == delivery.Sent:
				return delivery.EffectSent
			case !delivery.Legal(s.state, delivery.Cancelled):
				return delivery.EffectFinal
			}
			return delivery.EffectCancelled
		}}
}

// SettleHeld ends held deliveries as the operator says: sent or failed.
func (l *Ledger) SettleHeld(ctx context.Context, c delivery.SettleCommand) (Carried, error) {
	answer := &delivery.Answer{Code: "SETTLED_BY_OPERATOR", Text: delivery.Bound(c.Why)}
	turn := [2]delivery.RecipientState{delivery.RecipientPending, delivery.RecipientAccepted}
	if c.As == delivery.Failed {
		turn[1] = delivery.RecipientRefused
	}
	return l.command(ctx, order{action: "settle", to: c.As, turn: turn, warrant: c.Warrant, answer: answer, judge: func(s subject) delivery.Effect {
		switch {
		case s.queue == "leased":
			return delivery.EffectInWork
		case s.queue != "held" || s.state != delivery.Held:
			return delivery.EffectNotHeld
		}
		return delivery.EffectSettled
	}}, c.IDs)
}
