// Package sender takes requests in and sends them.
//
//	intake.go   subject -> decode -> prepare.go -> ledger.Accept -> ack
//	send.go     claim -> transport.Send -> one Outcome -> retry.Policy -> settle
//	poison.go   what cannot be read -> dead letters -> terminated
//	late.go     what is retried and was never prepared -> prepare.go -> its lane
//	ops*.go     "where is it?", and operators' commands, over NATS
//	jobs.go     commands over all that a filter finds, page by page
//
// It decides what a request means (prepare) and nothing about the order of work
// (package claim), about what follows an attempt (package retry), or about how
// to speak to a mail server (package transport/smtp). A database that is away
// stops intake and sending, nothing else; NATS being away stops intake only.
//
// Run owns all goroutines. It stops taking when its first context ends, finishes
// what is in hand, stores the results, publishes the events, and returns.
package sender
