// Package chaos breaks Posthouse on purpose and judges what is left of the truth.
// It starts the real programs (sender, watchdog, dead-letter), a real PostgreSQL
// cluster, a nats-server and a mail server as processes of their own, lets
// producers publish, injects faults, mends everything, waits until all is quiet,
// and hands what everybody remembers to an oracle. Nothing of the product imports
// it; `go run ./services/chaos/cmd/chaos` is its command.
//
//	history.go   what four witnesses say: producer, mail server, database, streams
//	oracle.go    Judge: the invariants I1 to I11 over a History, nothing else
//	tale.go      all that is known of one delivery, in the order of time
//	part.go      the parts that this program plays itself, as children: NATS, mail server
//	build.go     the programs under test; service.go  one instance of one
//	site.go      everything that a run needs; mend.go  repaired, and ended
//	servers.go   what can be done to the servers; sampler.go  what processes hold
//	proxy.go     the wire between a service and a server, and what can be done to it
//	wire_*.go    what is on that wire: PostgreSQL, NATS and SMTP, message by message
//	trap.go      a point on the wire at which something happens
//	producer.go  requests, repeated until acknowledged, in a synced log
//	quiet.go     when there is nothing left to do
//	witness.go   reads database, streams, ledgers and logs into a History
//	run.go       Execute: load, faults, repair, rest, judgement
//	scenario.go  F1 to F20 as a table; f*.go what each of them does
//	nemesis.go   random faults from a seed
//	short.go     the set that every test run has time for
//	planted.go   programs that are wrong in one way: the oracle must see it
//	report.go    figures, as JSON and as Markdown
//
// It decides what was promised (the oracle) and when a run has come to rest. It
// assumes one machine: all clocks are the same one. The points of fault F1 are
// found on the wire (a COMMIT that is about to leave, a final dot that has just
// left), so the programs under test are those that are shipped, without a hook; only
// the faults of package planted need a build of their own, with a tag. A run that
// does not come to rest is judged all the same: what is stuck is told.
//
// A Site owns every process and goroutine that it starts; Close ends them and
// waits. The kernel ends the processes when this one is killed.
package chaos
