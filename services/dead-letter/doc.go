// Package deadletter keeps what needs a person: it archives each final failure
// once and tells of it on the dead-letter subject.
//
// It decides which events are dead letters and under which source (the table in
// source.go), nothing else: alerting is a subject that anybody may consume. An
// event is acknowledged when the archive row and the outbox row are committed, so
// a crash repeats it and the archive knows it by the event's id. A message on its
// stream that is no event is archived itself, as poison.
//
// Run owns all goroutines; any number of instances share the consumer.
package deadletter
