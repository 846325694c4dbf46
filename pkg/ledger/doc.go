// Package ledger is the book: the only writer of deliveries, attempts, events,
// the queue and the dead letters.
//
// It decides whether a move still holds (fence and version, checked in the same
// statement that moves) and writes a move, its attempt, its event and its
// outbox row in one transaction, many deliveries at a time. It decides nothing
// about when or how often to try: package retry does.
//
// Every batch is one pipelined round trip and one implicit transaction; its
// first statement pins the planner to index lookups for that transaction only,
// because a plan made on an empty table would otherwise be kept until the first
// ANALYZE. Nothing depends on the session, so a transaction pooler may stand in
// between. Time is the database's.
//
// An error means that nothing is known of the batch: the caller repeats it.
// Repeating is safe: Accept finds its keys, Settle finds its attempts. The
// package starts no goroutine.
package ledger
