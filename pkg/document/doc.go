// Package document is the domain of inbound documents: which states a received
// document may be in, which moves are legal and who may cause them, what follows
// a verification, an attempt to forward, a silent backend or an operator's
// command, when the sending access point is answered by a Message Level Status
// (MLS), and the wire forms of the messages that bring a document and tell of it.
//
// It decides, and does nothing: every function takes the facts and the time and
// gives a Decision, which the caller writes in one transaction. It starts no
// goroutine, reads no clock and knows no database. It assumes that the caller
// holds the row (a lease and its fence), so that the facts are still true when
// the decision is written. When the facts do not allow a step it fails with
// ErrState; a fault in foreign input is an error that names the field.
//
//	                    receive
//	                       |            verifier away
//	                       v      .---------------------> deferred --.
//	.-- verified -----> received -+----- says no ---.        |       | time over,
//	|                   ^  |  ^   |                 v        |       | says no
//	|   operator        |  |  |   |              rejected <--+-------'
//	'-------------------+--'  '---+--- verified ----|--------'
//	                       |      (rejected goes on only if its forwarding is on)
//	                       v
//	                 (forwarding)   a lease, no version, no event
//	                  |    |    |
//	          .-------'    |    '--------.
//	          v            v             v
//	      forwarded      retry         dead
//
// Being forwarded (or verified) is a lease on the queue row, so a claim writes no
// version and no event. The table of moves, which a test compares with the code:
//
//	(new)     -> received   received              gateway
//	(new)     -> dead       no reference          gateway
//	received  -> received   verified              forwarder
//	received  -> rejected   verification          forwarder
//	received  -> rejected   verifier unavailable  forwarder
//	received  -> deferred   verifier unavailable  forwarder
//	received  -> received   unverified            forwarder
//	deferred  -> received   verified              verifier-retry
//	deferred  -> received   unverified            verifier-retry
//	deferred  -> received   verification off      verifier-retry
//	deferred  -> rejected   verification          verifier-retry
//	deferred  -> rejected   verifier unavailable  verifier-retry
//	deferred  -> rejected   deadline              verifier-retry
//	received  -> forwarded  attempt               forwarder
//	received  -> retry      attempt               forwarder
//	received  -> dead       refused               forwarder
//	received  -> dead       exhausted             forwarder
//	retry     -> forwarded  attempt               forwarder
//	retry     -> retry      attempt               forwarder
//	retry     -> dead       refused               forwarder
//	retry     -> dead       exhausted             forwarder
//	rejected  -> forwarded  attempt               forwarder
//	rejected  -> retry      attempt               forwarder
//	rejected  -> rejected   attempt               forwarder
//	rejected  -> dead       refused               forwarder
//	rejected  -> dead       exhausted             forwarder
//	received  -> dead       no forwarder          forwarder
//	retry     -> dead       no forwarder          forwarder
//	received  -> retry      lease expired         watchdog
//	retry     -> retry      lease expired         watchdog
//	received  -> retry      replay                operator
//	deferred  -> retry      replay                operator
//	retry     -> retry      replay                operator
//	rejected  -> retry      replay                operator
//	forwarded -> retry      replay                operator
//	dead      -> retry      replay                operator
//	deferred  -> received   reverify              operator
//	retry     -> received   reverify              operator
//	rejected  -> received   reverify              operator
//	dead      -> received   reverify              operator
//
// Beside its state a document changes by notes, which keep the state and have a
// version and an event too: mls (the backend reported), mls deadline (the
// watchdog answered instead), mls outcome (the delivery that carries the answer
// ended), c4 country (the backend told it late).
package document
