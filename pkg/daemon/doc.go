// Package daemon is the life of a process: settings, log, telemetry, health,
// the two connections, and an orderly end.
//
//	main.go   Main      environment -> configuration -> run -> exit code
//	config.go Load      every fault of the configuration at once, before the first connection
//	run.go    Run       open, serve health, body(taking, working), drain, close
//
// It decides how a process starts and stops, never what it does in between.
//
// Start: PostgreSQL and NATS may come later than we do, so Run waits for both,
// with jitter, telling each change once. A schema that refuses this binary ends
// the start; a schema that is not there yet is waited for, since the migration
// may still be running.
//
// Stop: the body gets two contexts. taking ends with the first signal: take no
// new work. working ends SHUTDOWN_TIMEOUT later: stop what is still in hand. A
// body that ignores both is left behind two seconds after that, and Run says so
// in its error; what it held comes back by its lease.
//
// It assumes that a NATS connection that is closed for good never comes back,
// and ends the process then (a supervisor starts it again).
//
// Goroutines: Run owns the health server, the body and the telemetry pipeline
// and waits for each of them within a bound. What outlives a bound (a body that
// ignores its contexts, a pool that such a body still holds) is named in an
// error or a log line and dies with the process.
package daemon
