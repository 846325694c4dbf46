package document

import (
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Facts are what a decision about one document depends on: a part of its row.
type Facts struct {
	ID     delivery.ID
	Tenant string
	State  State
	Kind   Kind

	SBDHInstanceID string
	Reference      string // kind mls: the SBDH instance id of the document that it answers
	MLSTo          string // from the SBDH, as received; may be useless
	MLSType        MLSType
	C2SeatID       string // from the signing certificate, such as POP000306

	ReceivedAt time.Time
	AS4At      time.Time // of the AS4 message, by the clock of the sending access point

	Verdict   Verdict // none, passed, rejected or unverified
	Issues    []Issue // what the verifiers found
	MLS       MLS
	C4Country string
}

// Origin is the moment from which the time of an answer counts: the AS4 time
// stamp, since MLS-1 is measured from it. A stamp after our own reception is a
// wrong clock and would push the deadline out, so reception bounds it.
func (f Facts) Origin() time.Time {
	if f.AS4At.IsZero() || f.AS4At.After(f.ReceivedAt) {
		return f.ReceivedAt
	}
	return f.AS4At
}

// Decision is what follows: written in one transaction, or not at all. The zero
// value is no decision.
type Decision struct {
	From, To State
	Cause    Cause
	By       Who

	// Quiet: only the due time changes. No version, no event, no attempt row.
	Quiet bool

	// Due is when a worker takes the document next; zero means that it leaves the
	// queue. A note (From == To and Note) leaves the queue row as it is.
	Due  time.Time
	Note bool

	// Counts: the attempt that just ended uses up one of the budget. Renew: the
	// budget starts anew.
	Counts, Renew bool

	Verdict   Verdict // of the document from now on
	Issues    []Issue // to be stored with it
	C4Country string  // of the document from now on

	MLS    MLS         // of the document from now on
	Send   *MLSRequest // a delivery to be accepted in the same transaction, or nil
	MLSDue time.Time   // the due row of the MLS deadline from now on; zero means none

	Letter Letter // dead-letter source, or none
}

// Letter is the source under which a document goes to the dead letters.
type Letter string

const (
	NoLetter         Letter = ""
	LetterRejected   Letter = "rejected"
	LetterExhausted  Letter = "forward_exhausted"
	LetterMLSOverdue Letter = "mls_overdue"
)

// After is the document once the decision is written.
func (f Facts) After(d Decision) Facts {
	f.State, f.Verdict, f.Issues, f.MLS, f.C4Country = d.To, d.Verdict, d.Issues, d.MLS, d.C4Country
	return f
}

// keep starts a decision that changes nothing yet.
func (f Facts) keep(to State, cause Cause, by Who) Decision {
	return Decision{From: f.State, To: to, Cause: cause, By: by,
		Verdict: f.Verdict, Issues: f.Issues, MLS: f.MLS, C4Country: f.C4Country}
}

// quiet postpones and changes nothing else.
func (f Facts) quiet(cause Cause, by Who, due time.Time, p *Policy) Decision {
	d := f.keep(f.State, cause, by)
	d.Quiet, d.Due = true, due
	return f.end(d, p)
}

// end adds what follows from the state after the decision.
func (f Facts) end(d Decision, p *Policy) Decision {
	after := f.After(d)
	if due, applies := after.MLSDeadline(p); applies {
		d.MLSDue = due
	}
	return d
}

func (f Facts) refuse(step string) error {
	return fmt.Errorf("document %s: %s in state %s: %w", f.ID, step, f.State, ErrState)
}
