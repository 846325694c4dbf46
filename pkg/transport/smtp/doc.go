// Package smtp is the mail channel: one Transport sends to one mail server over
// kept connections and reports, per recipient, what the server said and how far
// the dialogue had got.
//
// It decides what an answer means (classify.go), how a message looks on the wire
// (mime.go) and when a connection is used again (pool.go). It assumes that the
// content was prepared and that somebody else retries.
//
// The one byte that cannot be taken back is the final dot of DATA. Until the
// last write, which carries it, everything that goes wrong is known not to have
// been sent: Refused with a category, or Interrupted when we stopped ourselves.
// From that write on only a reply of the server settles the matter; a timeout, a
// reset, a garbled reply or the end of ctx is delivery.Unknown.
//
//	dial > greeting > ehlo > tls > ehlo > auth > mail > rcpt > data > body || final
//
// One goroutine, started by New and awaited by Close, closes idle connections.
// Close also waits for the sends that are in progress; whoever wants them to end
// sooner ends their ctx first.
package smtp

import "github.com/posthouse-io/posthouse/pkg/delivery"

// Phases of the dialogue, in the order in which they are reached.
const (
	PhaseContent  delivery.Phase = "content" // our own check of the content, before any connection
	PhaseWait     delivery.Phase = "wait"    // waiting for a free connection of our own pool
	PhaseDial     delivery.Phase = "dial"
	PhaseGreeting delivery.Phase = "greeting"
	PhaseEhlo     delivery.Phase = "ehlo"
	PhaseTLS      delivery.Phase = "tls"
	PhaseAuth     delivery.Phase = "auth"
	PhaseMail     delivery.Phase = "mail"
	PhaseRcpt     delivery.Phase = "rcpt"
	PhaseData     delivery.Phase = "data"
	PhaseBody     delivery.Phase = "body"
	PhaseFinal    delivery.Phase = "final" // the final dot has been written
)

// Codes of failures that no reply of the server carries.
const (
	CodeContent     = "CONTENT_INVALID"
	CodeConfig      = "CONFIG_NOT_RESOLVABLE"
	CodeAddress     = "ADDRESS_INVALID"
	CodeDial        = "DIAL_FAILED"
	CodeTLS         = "TLS_FAILED"
	CodeNoTLS       = "TLS_UNAVAILABLE" // the policy wants TLS and the server does not offer it
	CodeNoAuth      = "AUTH_UNAVAILABLE"
	CodeLost        = "CONNECTION_LOST"
	CodeTimeout     = "TIMEOUT"
	CodeProtocol    = "PROTOCOL_ERROR" // what came is not a reply of SMTP
	CodeInterrupted = "INTERRUPTED"
)
