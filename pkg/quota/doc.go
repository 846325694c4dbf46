// Package quota counts what a tenant sends in a month, and ends it at a ceiling.
//
// A charge is one unit per delivery, however many recipients it has; retries are
// free. It is written in the transaction that accepts (or prepares) the deliveries,
// so it is neither lost nor counted twice, whatever crashes. A batch charges each
// bucket once: the row is locked until that transaction ends, and a burst waits in
// line instead of losing races. Used up is a final answer (the seed), or, where the
// quota says hold, a wait until the month turns or the ceiling is raised.
//
// It assumes that few buckets are charged by one transaction; they are locked in
// one order. It starts no goroutine.
package quota
