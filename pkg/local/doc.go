// Package local runs the two servers that Posthouse needs, a PostgreSQL cluster
// and a NATS server with JetStream, as private property of one process: for
// `posthouse up`, for `posthouse demo` and for every test.
//
// What it decides: where the PostgreSQL programs are (PATH, then the usual
// places, version 15 or newer, the version of the cluster where one exists),
// which account runs them (PostgreSQL refuses root: as root, the owner of the
// cluster, else postgres, else nobody), which port is used, and that both
// servers listen on 127.0.0.1 only. PostgreSQL asks for a random password that
// lies in the cluster's folder, readable by its owner alone; NATS has no users
// unless a configuration file gives it some.
//
// What it assumes: a local file system with flock(2), and a folder for each
// server that nobody else writes to.
//
//	<postgres dir>/lock          held by the process that owns the cluster
//	<postgres dir>/password      of the superuser posthouse, mode 0600
//	<postgres dir>/data          the cluster
//	<postgres dir>/postgres.log  what the server said; moved to .1 at a start above 8 MiB
//	<nats dir>/lock, jetstream/  the same lock, and the streams
//
// How it fails: each error of a start says what to do next, and quotes the end of
// the server's log. A folder that another living process owns is ErrInUse. When
// this process is killed, Linux ends PostgreSQL with it (parent death signal);
// on other systems the next start on the same folder finds the orphan and ends
// it. NATS runs inside this process and needs no such care.
//
// Goroutines: one per PostgreSQL server process, which waits for it and ends
// with it; those of the embedded NATS server end with Stop. The context of a
// start bounds the start, not the life of the server.
package local
