package deadletter

import (
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// sources says which states of a delivery are dead letters, and as what.
func sources() map[delivery.State]streams.Source {
	return map[delivery.State]streams.Source{
		delivery.Dead:    streams.SendExhausted,
		delivery.Failed:  streams.SendFailed,
		delivery.Expired: streams.Expired,
		delivery.Held:    streams.Held,
	}
}

// filters are the subjects of those events.
func filters() []string {
	var list []string
	for _, state := range []delivery.State{delivery.Dead, delivery.Failed, delivery.Expired, delivery.Held} {
		list = append(list, streams.EventsOf(streams.KindDelivery, string(state)))
	}
	return list
}
