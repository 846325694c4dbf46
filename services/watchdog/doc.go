// Package watchdog returns or ends work that nobody looks after any more, keeps the
// event stream equal to the book, and says when something lags.
//
//	stuck.go      a worker died or hangs: the attempt is unknown, and policy decides
//	overdue.go    expires_at has passed while a delivery waited
//	upkeep.go     history partitions ahead of time, forgotten workers
//	reconcile.go  what the event stream lacks of the event table is published again
//	replay.go     a person has events published again
//	lag.go        outbox, ready rows, consumers, old snapshots: alarms, by alarm.go
//	canary.go     a request through the whole pipe, when asked for
//	retention.go  old months of history and old request keys leave
//
// It decides nothing about a delivery by itself: an attempt without a result is of
// unknown outcome and goes through the same retry.Policy and the same guarded settle
// as any other, so a list that is out of date changes nothing. It looks when the
// earliest lease lapses and, as a safety net, once a minute. Any number of instances
// may run: sweeps may meet, what must not is a duty under a lease in the database,
// and an alarm is raised by whoever comes first.
//
// A round that fails is logged and comes again. Run owns all goroutines and stops
// between two pages.
package watchdog
