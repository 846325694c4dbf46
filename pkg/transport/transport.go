// Package transport is the contract between the sender and one channel: a
// Message goes out, one Outcome comes back.
//
// A transport classifies what happened; it never decides what follows, never
// retries by itself, and never sees a database or the bus. It owns no goroutine
// that outlives Close. Whatever it cannot tell stays delivery.Unknown.
package transport

import (
	"context"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Recipient is one envelope recipient that still waits.
type Recipient struct {
	Ordinal int
	Address string
}

// Message is all that a transport needs for one attempt.
type Message struct {
	ID         delivery.ID
	Tenant     string
	Attempt    int         // 1 for the first
	Recipients []Recipient // only those that still wait
	Content    []byte      // the prepared content, in the form of the channel

	// Proceed is asked immediately before the byte that cannot be taken back. An
	// error means: stop now, nothing was sent (delivery.Interrupted). Never nil.
	Proceed func() error
}

// Transport sends one message. It returns exactly one Outcome and no error; it
// honours ctx, whose end before the irreversible byte is delivery.Interrupted
// when we ended it (context.Canceled) and a transient refusal when it timed out.
type Transport interface {
	Send(ctx context.Context, m Message) delivery.Outcome
	Close() error
}
