// Package http forwards a document by POST to the receiver backend.
//
// In mode sync the backend works on the document before it answers: 2xx with a
// JSON object (forward.ParseAnswer) or without a body means delivered. In mode
// async 2xx means that it was taken, and what the backend finds comes later by
// the API; the body of the answer is ignored.
//
// It decides what a status means (classify.go). The byte that cannot be taken
// back is the last one of the body: a connection that fails before it is a
// transient refusal, one that fails after it leaves the outcome Unknown. A 4xx is
// final except 408, 425 and 429; 5xx is transient; Retry-After of 429 and 503 is
// handed on. A redirect is refused, since a document goes where it was meant to
// go and nowhere else.
//
// The request carries Idempotency-Key and Posthouse-Document-Id, which are the
// same at each attempt, Posthouse-Attempt, which is not, and with signing secrets
// the headers of Standard Webhooks. Foreign texts in headers are written as
// forward.Escape does, so a URL decoder gives them back.
//
// It speaks HTTP/1.1 over kept connections and through no proxy. The transport
// never repeats a request by itself once it has touched the body. Its goroutines
// are those of net/http; Forward waits for the one that reads the payload, Close
// for the connections.
package http
