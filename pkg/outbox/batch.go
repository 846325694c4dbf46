// Package outbox brings to JetStream what a transaction has decided to say.
//
// A writer inserts one row per transaction, in the same transaction, naming
// exactly the messages to publish (Insert is the statement, the writer runs
// it), and hands the same messages to the Relay after the commit. The relay
// publishes them and removes the row. When the writer dies in between, the
// row's lease runs out and a sweeper of any process does the same from the
// database. There is no cursor: rows that are present are published, so rows
// that commit out of order are simply seen later.
//
// A message may be published twice (crash between acknowledgement and removal);
// its id makes JetStream drop the repeat within the duplicate window, and
// consumers drop it by version after that. Order across transactions is not
// promised. The relay owns its goroutines; Run returns when all have ended.
package outbox

import (
	"github.com/google/uuid"
)

// Message is one message to publish.
type Message struct {
	ID      string // Nats-Msg-Id and Posthouse-Event-Id
	Subject string
	Body    []byte
	Trace   string // W3C traceparent, or empty
}

// Batch is what one transaction has to say: the content of one outbox row.
type Batch struct {
	ID       uuid.UUID
	Messages []Message
}
