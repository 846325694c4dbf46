// Package verifytest is a scripted verifier: an HTTP server on the loopback
// interface that answers each question with the next step of its script, and that
// keeps what it was asked.
//
// It decides nothing about documents: whoever wants a rejection scripts one. Start
// owns the server's goroutines and Close waits for them; a step that hangs ends
// with the request or with Close. It does not import testing, so that
// demonstrations can use it as well.
package verifytest
