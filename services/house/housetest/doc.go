// Package housetest is a whole post house for one test: a database, a NATS
// server with the streams, a mail server that keeps a ledger, and the services
// that the test asks for, in its own process or as real ones.
//
//	site.go     Site      the three other sides, and the settings that name them
//	service.go  Service   one Run function in this process
//	program.go  Program   one real process of the built binaries
//	publish.go  Publish   requests, acknowledged by the stream
//	audit.go    Audit     what database, stream and mail server say of each delivery
//	gate.go     Gate      a mail server that keeps its clients waiting
//	logbook.go  Logbook   what a service wrote, kept and searchable
//
// It decides what must hold whatever has happened (Audit.Check): nothing lost,
// nothing twice except beside an attempt that is recorded as unknown, events
// contiguous and the same in database and stream. It fails by t.Fatal or t.Error
// of the test that owns the Site; that test's cleanup ends all goroutines and
// processes.
package housetest
