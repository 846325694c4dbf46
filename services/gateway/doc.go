// Package gateway is the service that talks HTTP with operators and the receiver
// backend: where documents and deliveries are, what shall be done with them, what C2
// is told, and the way in for documents that do not come over the bus. This is the
// private side; nothing here is for the public.
//
// It decides who may ask for what (Keys, Role) and what an HTTP request means. What
// follows from a command is decided by package document and written by package
// docket, in one transaction with its audit entry and its event. The description
// that /openapi.json gives is made from the code that serves it.
//
// It assumes that its settings about documents (verification, MLS, duplicates) are
// those of the forwarders. It is closed by default: without tokens every request is
// refused, and it listens without TLS only where nobody else can hear, unless told
// otherwise.
//
// A refusal is a problem of RFC 9457. A fault of ours is one without details; they
// are in the log. Neither tokens nor content are in either.
//
// Each goroutine is owned by Run, which returns when all have ended: first nothing
// new is taken, then requests in hand are answered, then events are published.
package gateway
