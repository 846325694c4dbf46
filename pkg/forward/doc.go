// Package forward is the contract between the forwarder service and one way to
// the receiver backend: a Document goes out, one Outcome comes back. One folder
// for each way: http, s3, sftp, filesystem, nats; all builds the configured one.
//
// What it decides: how a document reads (Document, Payload), what an attempt can
// end with (Outcome), what a backend's JSON answer means (ParseAnswer), and how
// a stored document is named (Pattern). It never decides what follows.
//
// What it assumes: the caller retries, and the lease stands behind Proceed. The
// bytes come from a store that can be read more than once, and are not trusted:
// size and SHA-256 are checked while they flow, and the last byte is held back
// until both are right. So a payload that was cut short or changed is never
// delivered, not even half of it under its final name.
//
// How it fails: until the irreversible step everything that goes wrong is known
// not to have been delivered: Refused with a category, or Interrupted when we
// stopped ourselves. From that step on only an answer settles the matter;
// without one the Outcome is Unknown. What the step is depends on the way:
//
//	http        the last byte of the body
//	s3          the last byte of the object; with a link also that of the link
//	sftp        the request to rename
//	filesystem  the rename
//	nats        the publish
//
// A repeat of the same document (same ID) writes the same name or carries the
// same idempotency key, so it leaves one copy, not two.
//
// It owns no goroutine. A Forwarder's Close waits for the forwards in progress.
package forward
