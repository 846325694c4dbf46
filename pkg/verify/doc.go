// Package verify asks the verifier backends whether a document is as it should
// be. Each of them gets the document by POST and answers with a verdict and
// issues; all are asked at once, each with a time limit of its own, and each
// gives one document.Result. What they say together is document.Combine.
//
// It decides what an answer means (classify.go). Only an answer in the agreed form
// passes or rejects a document; everything else, such as an error status, a page
// of a proxy, a contradiction or an answer before the document was read, is
// unavailable. A 4xx may carry an answer in that form, and then it counts if it
// rejects; a 5xx never does. A redirect is refused, since a document goes where it
// was meant to go. Failures of our own (we were told to stop, our copy cannot be
// read or has another hash) are marked as Ours: they say nothing of the verifier.
//
// It assumes that verifiers only look, so asking twice does no harm, and that the
// caller keeps a breaker per verifier: All takes any Asker, so a breaker can stand
// in between.
//
// It speaks HTTP/1.1 over kept connections and through no proxy. All waits for
// every goroutine that it starts, Ask for the one that reads the document, Close
// for every Ask.
package verify
