package deadletter

import (
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
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

// documentSource says whether an event of a document is a dead letter: the move into
// a state from which no worker takes it on, not a note that is added later.
func documentSource(e *document.Event) (streams.Source, bool) {
	switch {
	case e.State == document.Dead && e.Cause == document.CauseNoReference:
		return streams.Rejected, true
	case e.State == document.Dead && (e.Cause == document.CauseRefused || e.Cause == document.CauseExhausted || e.Cause == document.CauseNoForwarder):
		return streams.ForwardExhausted, true
	case e.State == document.Rejected && (e.Cause == document.CauseVerification || e.Cause == document.CauseUnavailable || e.Cause == document.CauseDeadline):
		return streams.Rejected, true
	}
	return "", false
}

// filters are the subjects of those events.
func filters() []string {
	list := []string{streams.EventsOf(streams.KindDocument, string(document.Dead)), streams.EventsOf(streams.KindDocument, string(document.Rejected))}
	for _, state := range []delivery.State{delivery.Dead, delivery.Failed, delivery.Expired, delivery.Held} {
		list = append(list, streams.EventsOf(streams.KindDelivery, string(state)))
	}
	return list
}
