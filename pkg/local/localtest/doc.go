// Package localtest gives tests the real PostgreSQL and the real NATS, without
// anything to set up: they are started on first use and end with the test
// process.
//
// What it decides: one PostgreSQL cluster per test binary, without fsync, in
// which each test has a database of its own, copied from a migrated template;
// one NATS server per test, in the test's process. A test that breaks a server
// takes a cluster of its own (Cluster) or the handle of its server (NATSServer).
//
// What it assumes: PostgreSQL 15 or newer is installed; when it is not, tests
// fail and say what to install, they never skip. It works as root and as any
// other user, and in as many test binaries at once as go test starts.
//
// How it fails: by t.Fatal, with the end of the server's log. A test binary that
// is killed takes its cluster along (Linux); the folder that it leaves in the
// temporary directory is removed by the next one.
//
// Who owns the goroutines: the test that asked, through its cleanup; those of the
// shared cluster belong to the test binary. A package that looks for leaked
// goroutines ends the cluster first:
//
//	func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }
package localtest
