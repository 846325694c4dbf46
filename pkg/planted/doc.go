// Package planted has the faults that are put into the programs on purpose, so that
// the chaos suite can show that its oracle finds them. They exist only in a build
// with the tag "planted", and there one at a time, chosen by CHAOS_PLANTED in the
// environment. In every other build Is is false, the compiler removes what depends
// on it, and no program holds a trace of it; a test of services/chaos looks.
//
// It decides nothing, assumes nothing and starts no goroutine. A statement that no
// longer has the words which a fault replaces panics: a fault that is not planted
// must not look like one that was not found.
package planted

// The faults, as CHAOS_PLANTED names them.
const (
	Ack    = "ack"    // a request is acknowledged before it is committed
	Fence  = "fence"  // a result is stored without a look at fence, version and owner
	Event  = "event"  // a result is stored without its event
	Outbox = "outbox" // an outbox row goes before its events are acknowledged
	Claim  = "claim"  // work is claimed by a subquery that locks nothing
	Reset  = "reset"  // leases are taken back without an attempt of unknown outcome
)
