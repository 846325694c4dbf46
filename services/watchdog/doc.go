// Package watchdog returns or ends work that nobody looks after any more.
//
//	stuck.go    a worker died or hangs: the attempt is unknown, and policy decides
//	overdue.go  expires_at has passed while a delivery waited
//	upkeep.go   history partitions ahead of time, forgotten workers
//
// It decides nothing by itself: an attempt without a result is of unknown outcome
// and goes through the same retry.Policy and the same guarded settle as any
// other, so a list that is out of date changes nothing. It looks when the
// earliest lease lapses and, as a safety net, once a minute; any number of
// instances may run. Run owns all goroutines and stops between two pages.
package watchdog
