// Package bench measures Posthouse on this machine, and River beside it when
// asked to. It is what `posthouse bench` runs.
//
//	plan.go       how much of everything: Quick, Full
//	bench.go      the order of the measurements, rounds, medians
//	servers.go    a durable private PostgreSQL; a folder for everything
//	site.go       a fresh database and a fresh NATS process for one measurement
//	role.go       parts that run as processes of their own: NATS, a sender to kill
//	load.go       rows and requests made beforehand
//	way.go        the transport that accepts at once
//	burndown.go intake.go latency.go buffers.go snapshot.go idle.go takeover.go fairness.go limit.go river.go
//	report.go     the figures, their bars and goals, as JSON and as a table
//
// It decides what is counted: a delivery counts when its attempt row is stored,
// its event is acknowledged by JetStream and the outbox is empty. The sender that
// is measured is the one that is shipped (sender.RunWith) with shipped settings,
// save for the number of slots; NATS and PostgreSQL are processes of their own, so
// that the CPU time of each can be told apart.
//
// It assumes an otherwise idle machine and tells how idle it was (foreign_cores).
// CPU time is read from /proc and missing elsewhere; statements are counted by
// pg_stat_statements and missing where the server does not have it. A figure that
// misses its bar is a figure; only what breaks is an error. Run owns every
// process and goroutine that it starts, and removes its folder.
package bench
