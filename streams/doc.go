// Package streams says what JetStream must look like for Posthouse: the streams
// (one JSON file each, in the server's own form, so `nats stream add --config`
// reads them too) and every subject of the project.
//
// It decides names, limits and the grammar of subjects. It assumes that
// PostgreSQL is the record: a stream is transport, and losing one costs time, not
// facts. A change of a file that could lose messages on a running server is
// refused by Apply, which names the stream and the field and touches nothing; a
// person makes such a change by hand. Fields that a file does not mention
// (replicas, placement, sources) belong to the operator and are left alone, and
// so is every stream that is not ours. The package starts no goroutine.
package streams
