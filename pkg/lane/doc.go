// Package lane is the book of destinations: one row each, with what protects it
// and what it may take. It owns what all instances share of a circuit breaker
// (open, half open, the probes), the caps that follow throttling and outages, the
// limits, and the pauses of lanes, tenants and channels.
//
// A claim of work reads the row and skips what is shut; of a guarded lane it locks
// the row and counts. So nothing here is told to the rows that wait: opening,
// closing or pausing a lane with a million rows is one update.
//
// Breaker: closed -> open by the instance that has counted enough failures (package
// breaker counts); open -> half_open by whoever looks for work once the time is
// over; in half_open a leased row is a permit, so a permit can not be lost: its
// lease ends. Enough probes that succeed close it, one that fails opens it again.
// Every change is guarded by the state or version it starts from, raises the
// version by one, and is published as an event from the same transaction.
//
// It assumes that a change concerns few lanes at a time. It starts no goroutine.
package lane
