// Package docket is the book of received documents: the only writer of their rows.
//
// What follows from anything is decided by package document from the facts; this
// room holds the row while it does, and writes the decision, the attempt, the event,
// the due rows and the answer to C2 (a delivery of its own) in one transaction.
// So a document is answered at most once, whoever comes first.
//
// It assumes that a worker holds its claim: a write after a claim names the fence
// and the owner, and changes nothing when another has it now. Facts are read again
// under the lock, since an operator or the backend may have told something
// meanwhile. It fails as the database does; after an error of Settle nothing is
// known, and the lease runs out. It starts no goroutine.
package docket
