package document

import (
	"errors"
	"fmt"
)

// State is where an inbound document stands.
type State string

const (
	Received  State = "received"  // stored, to be verified and forwarded
	Deferred  State = "deferred"  // waits for a verifier that is away
	Retry     State = "retry"     // waits for its next attempt
	Forwarded State = "forwarded" // final: the receiver backend has it
	Rejected  State = "rejected"  // final: verification said no
	Dead      State = "dead"      // final: the backend never took it
)

// Forwarding is the word for a document under a worker's lease. It is shown, and
// never written: no row and no event has it.
const Forwarding State = "forwarding"

// States lists every state that a row may have, in the order of a document's life.
func States() []State { return []State{Received, Deferred, Retry, Forwarded, Rejected, Dead} }

// ParseState reads the wire word of a state.
func ParseState(s string) (State, error) {
	for _, known := range States() {
		if s == string(known) {
			return known, nil
		}
	}
	return "", fmt.Errorf("state is %.32q, want one of %v", s, States())
}

// Final tells whether the document's life has ended. A rejected one may still be
// forwarded for information (Policy.Rejected), and a person may revive any.
func (s State) Final() bool { return s == Forwarded || s == Rejected || s == Dead }

// Who may cause a move.
type Who string

const (
	Gateway       Who = "gateway" // reception: the intake of what the gateway published
	Forwarder     Who = "forwarder"
	VerifierRetry Who = "verifier-retry"
	Watchdog      Who = "watchdog"
	Operator      Who = "operator"
	Backend       Who = "backend" // the receiver backend, by the API
	Sender        Who = "sender"  // the service that carries the MLS
)

// Cause says why a document moved or was noted; it stands in the event.
type Cause string

const (
	CauseReceived     Cause = "received"
	CauseNoReference  Cause = "no reference"         // an MLS that answers nothing
	CauseVerified     Cause = "verified"             // all verifiers pass it
	CauseVerification Cause = "verification"         // a verifier says no
	CauseUnavailable  Cause = "verifier unavailable" // and what the fail mode makes of it
	CauseUnverified   Cause = "unverified"           // let through by fail mode open
	CauseOff          Cause = "verification off"     // turned off while it waited
	CauseDeadline     Cause = "deadline"             // the verifier stayed away for too long
	CauseAttempt      Cause = "attempt"
	CauseRefused      Cause = "refused"   // the backend will never take it
	CauseExhausted    Cause = "exhausted" // attempts used up
	CauseNoForwarder  Cause = "no forwarder"
	CauseLeaseExpired Cause = "lease expired"
	CauseReplay       Cause = "replay"
	CauseReverify     Cause = "reverify"

	CauseMLS         Cause = "mls"
	CauseMLSDeadline Cause = "mls deadline"
	CauseMLSOutcome  Cause = "mls outcome"
	CauseC4Country   Cause = "c4 country"

	// The next are causes of a quiet Decision, which has no version and no event.
	CausePostponed   Cause = "postponed"   // an open breaker or a full lane
	CauseInterrupted Cause = "interrupted" // we stopped
	CausePayload     Cause = "payload"     // our own copy could not be read
)

// Move is one legal change of state.
type Move struct {
	From, To State // an empty From is reception
	Cause    Cause
	By       Who
}

// Moves is the table of all legal moves.
func Moves() []Move {
	return []Move{
		{"", Received, CauseReceived, Gateway},
		{"", Dead, CauseNoReference, Gateway},
		{Received, Received, CauseVerified, Forwarder},
		{Received, Rejected, CauseVerification, Forwarder},
		{Received, Rejected, CauseUnavailable, Forwarder},
		{Received, Deferred, CauseUnavailable, Forwarder},
		{Received, Received, CauseUnverified, Forwarder},
		{Deferred, Received, CauseVerified, VerifierRetry},
		{Deferred, Received, CauseUnverified, VerifierRetry},
		{Deferred, Received, CauseOff, VerifierRetry},
		{Deferred, Rejected, CauseVerification, VerifierRetry},
		{Deferred, Rejected, CauseUnavailable, VerifierRetry},
		{Deferred, Rejected, CauseDeadline, VerifierRetry},
		{Received, Forwarded, CauseAttempt, Forwarder},
		{Received, Retry, CauseAttempt, Forwarder},
		{Received, Dead, CauseRefused, Forwarder},
		{Received, Dead, CauseExhausted, Forwarder},
		{Retry, Forwarded, CauseAttempt, Forwarder},
		{Retry, Retry, CauseAttempt, Forwarder},
		{Retry, Dead, CauseRefused, Forwarder},
		{Retry, Dead, CauseExhausted, Forwarder},
		{Rejected, Forwarded, CauseAttempt, Forwarder},
		{Rejected, Retry, CauseAttempt, Forwarder},
		{Rejected, Rejected, CauseAttempt, Forwarder},
		{Rejected, Dead, CauseRefused, Forwarder},
		{Rejected, Dead, CauseExhausted, Forwarder},
		{Received, Dead, CauseNoForwarder, Forwarder},
		{Retry, Dead, CauseNoForwarder, Forwarder},
		{Received, Retry, CauseLeaseExpired, Watchdog},
		{Retry, Retry, CauseLeaseExpired, Watchdog},
		{Received, Retry, CauseReplay, Operator},
		{Deferred, Retry, CauseReplay, Operator},
		{Retry, Retry, CauseReplay, Operator},
		{Rejected, Retry, CauseReplay, Operator},
		{Forwarded, Retry, CauseReplay, Operator},
		{Dead, Retry, CauseReplay, Operator},
		{Deferred, Received, CauseReverify, Operator},
		{Retry, Received, CauseReverify, Operator},
		{Rejected, Received, CauseReverify, Operator},
		{Dead, Received, CauseReverify, Operator},
	}
}

// Legal tells whether the table has the move.
func Legal(from, to State, cause Cause) bool {
	for _, m := range Moves() {
		if m.From == from && m.To == to && m.Cause == cause {
			return true
		}
	}
	return false
}

// Note is a change beside the state, and who may cause it.
type Note struct {
	Cause Cause
	By    Who
}

// Notes lists every note; any state may have it.
func Notes() []Note {
	return []Note{
		{CauseMLS, Backend}, {CauseMLSDeadline, Watchdog}, {CauseMLSOutcome, Sender}, {CauseC4Country, Backend},
	}
}

// ErrState is the refusal of a step that the document's state does not allow.
var ErrState = errors.New("the document's state does not allow this")
