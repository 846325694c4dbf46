// Package settle stores results, many in one transaction, before their slots are
// free again.
//
// It decides only what goes together: whatever has arrived by the time the last
// write is through, at most 500 results; it never lingers for more. A result is
// stored or known to be late before Settle returns, so an engine whose slots
// wait for Settle takes no new work while results cannot be stored. Healthy
// tells a send that is about to pass the point of no return.
//
// While the database does not answer it repeats the same batch, which is safe
// (package ledger tells a repeat from a first write). A result that the database
// refuses by itself is told once and left to the sweep. Run owns the one
// goroutine and ends when its context does and everything handed in is answered.
package settle
