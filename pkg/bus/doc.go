// Package bus is nats.go behind Posthouse: connecting, publishing with a stable
// id, consuming in batches, operations as NATS services, and doorbells.
//
// It decides how to connect (for ever, with jitter), how to publish (atomic
// batches, singles when a batch is refused) and how to keep a consumer alive
// (rebuild whatever was lost). It assumes that PostgreSQL is the record: a
// publish whose answer was lost is simply published again under the same id, and
// a message whose handler did not acknowledge it comes again. It never decides
// what a message means, and never acknowledges one.
//
// How it fails: publishing reports an error per message; consuming reports
// nothing but the end of the connection, all else is logged once and tried
// again. Goroutines belong to the call that started them: Consume, Serve and the
// stop function of OnRing return when theirs have ended; a *nats.Conn belongs to
// who called Connect.
package bus
