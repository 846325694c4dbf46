package delivery

// State is where a delivery stands. Being sent is no state of the record: it is
// a lease on the queue row, so a claim writes no version and no event.
type State string

const (
	Pending   State = "pending"   // accepted, not yet tried
	Retry     State = "retry"     // waits for its next attempt
	Held      State = "held"      // waits for a person
	Sent      State = "sent"      // the other side accepted
	Failed    State = "failed"    // final: no retry would help
	Dead      State = "dead"      // final: attempts or time used up
	Expired   State = "expired"   // final: too late
	Cancelled State = "cancelled" // final: called back
)

// States lists every state in the order of a delivery's life.
func States() []State {
	return []State{Pending, Retry, Held, Sent, Failed, Dead, Expired, Cancelled}
}

// Final tells whether no worker will touch the delivery again by itself.
func (s State) Final() bool {
	switch s {
	case Sent, Failed, Dead, Expired, Cancelled:
		return true
	}
	return false
}

// Move is one legal change of state and who may cause it.
type Move struct {
	From, To State
	Cause    string
}

// Moves is the table of all legal moves. The empty From is acceptance.
func Moves() []Move {
	return []Move{
		{"", Pending, "accepted"},
		{"", Failed, "cannot be prepared"}, {Pending, Failed, "cannot be prepared"}, {Retry, Failed, "cannot be prepared"},
		{Pending, Sent, "attempt"}, {Retry, Sent, "attempt"},
		{Pending, Retry, "attempt"}, {Retry, Retry, "attempt"},
		{Pending, Failed, "attempt"}, {Retry, Failed, "attempt"},
		{Pending, Dead, "attempt"}, {Retry, Dead, "attempt"},
		{Pending, Held, "unknown outcome"}, {Retry, Held, "unknown outcome"},
		{Pending, Expired, "expires_at"}, {Retry, Expired, "expires_at"}, {Held, Expired, "expires_at"},
		{Pending, Cancelled, "operator"}, {Retry, Cancelled, "operator"}, {Held, Cancelled, "operator"},
		{Pending, Retry, "operator"}, {Retry, Retry, "operator"}, {Held, Retry, "operator"}, {Failed, Retry, "operator"}, {Dead, Retry, "operator"}, {Expired, Retry, "operator"},
		{Held, Sent, "operator"}, {Held, Failed, "operator"},
		{Held, Sent, "answer"}, {Held, Retry, "answer"},
		{Retry, Sent, "late result"}, {Held, Sent, "late result"}, {Dead, Sent, "late result"},
		{Sent, Failed, "bounce"},
	}
}

// Legal tells whether the table has a move between the two states.
func Legal(from, to State) bool {
	for _, m := range Moves() {
		if m.From == from && m.To == to {
			return true
		}
	}
	return false
}
