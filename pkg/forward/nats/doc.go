// Package nats forwards a document as a NATS message to the receiver backend.
//
// In mode jetstream the message is published to a stream, and the stream's
// acknowledgement is Accepted; the document id is the Nats-Msg-Id, so a repeat
// within the stream's duplicate window is dropped there. In mode core the
// message is a request to the backend itself, whose reply is read like the
// answer to a synchronous POST (forward.ParseAnswer); an empty reply means
// delivered, a reply with Nats-Service-Error-Code a refusal.
//
// The publish is the step that cannot be taken back. Without an answer to it the
// outcome is Unknown; a subject that nobody listens to is known at once and a
// transient refusal.
//
// A message is at most as large as the server allows (max_payload, 1 MiB unless
// configured), so the document is held in memory; a larger one is refused for
// good. Nothing is buffered while the connection is down: a message that went
// out after its attempt was judged would be a second delivery.
//
// The connection is either the caller's, or one of its own when a URL is
// configured. The goroutines of its own are those of the client library, and
// Close waits for its end.
package nats
