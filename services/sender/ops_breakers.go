package sender

import (
	"context"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// maxBreakers bounds the answer of one sender.
const maxBreakers = 1000

// instanceBreakers says what this sender knows of breakers beyond the lanes' rows.
func (o *operator) instanceBreakers(ctx context.Context, _ bus.Request) (any, error) {
	trouble, err := o.lanesOf(ctx, delivery.LaneFilter{Trouble: true})
	if err != nil {
		return nil, err
	}
	rows := make(map[string]string, len(trouble))
	for _, l := range trouble {
		rows[l.Key] = l.Breaker
	}
	return differing(o.instance, o.breakers.List(), rows), nil
}

// differing keeps of what an instance knows what its lane's row (absent: closed) does
// not say.
func differing(instance string, known []breaker.Known, rows map[string]string) []delivery.InstanceBreaker {
	list := []delivery.InstanceBreaker{}
	for _, k := range known {
		b := delivery.InstanceBreaker{Instance: instance, Key: k.Gate.Key, State: string(breaker.Closed), Row: rows[k.Gate.Key], Failures: k.Failures, Unsaved: k.Unsaved}
		if b.Row == "" {
			b.Row = string(breaker.Closed)
		}
		if k.Refuses {
			b.State, b.Until, b.Failures, b.Cause = string(breaker.Open), &k.Gate.Until, k.Gate.Failures, delivery.Bound(k.Gate.Cause)
		}
		differs := k.Refuses != (b.Row == string(breaker.Open))
		if counted := k.Failures > 0 && !k.Refuses; (differs || counted || k.Unsaved) && len(list) < maxBreakers {
			list = append(list, b)
		}
	}
	return list
}
