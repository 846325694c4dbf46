// Package forwarder is the service of received documents: it takes them from the
// bus into the book, asks the verifiers about them, and brings them to the receiver
// backend.
//
// What follows from anything is decided by package document and written by package
// docket; this service only brings the facts together. Any number of instances share
// the work by leases. A document is stored, with its bytes, before its message is
// acknowledged; a message that can not be read goes to the dead letters as it came.
//
// Each goroutine is owned by Run, which returns when all have ended: first nothing
// new is taken, then what is in work ends or is cut off, then results are stored,
// then events are published.
package forwarder
