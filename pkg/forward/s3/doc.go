// Package s3 forwards a document as an object in an S3 bucket, and with a
// notifier also tells the receiver backend where it lies.
//
// The object is put in one streamed request, never in parts: so it appears whole
// or not at all, nothing half sent is left to pay for, and the last byte of the
// body is the step that cannot be taken back. The SHA-256 is part
// of what is signed (x-amz-content-sha256), so the store checks it, too. The key
// is the same at each attempt, and a repeat replaces the object. One request carries
// 5 GiB at most in Amazon's S3.
//
// The link is a JSON document (see link.go) that another forward.Forwarder
// delivers after the put, under the id of the document. What became of the link
// is then the outcome: an object that nobody was told of is not delivered. Each of
// the two steps asks Proceed.
//
// It decides what an answer of the store means (classify.go) and assumes nothing
// about a key that exists. It repeats nothing by itself. The goroutines are those
// of net/http; Close ends the kept connections.
package s3
