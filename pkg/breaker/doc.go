// Package breaker counts what happens at each destination and decides when to
// leave it alone.
//
// It shares the work with the lane's row in the database, which belongs to all
// instances: while a lane is closed, each instance counts for itself, here, with
// sony/gobreaker; once one of them has seen enough it opens the row, and from then
// on the row says what may be sent. In half open a row that is claimed is a probe,
// and its lease is the permit: here only its result is told. So a permit that
// nobody gives back can not keep a breaker half open for ever.
//
// Results are counted when they come, not when the call began: a send may take
// longer than any window, and the library drops what comes after its window has
// turned. Each permit counts once. A result that nobody gave is a failure. What
// says nothing of the destination (we stopped ourselves) counts nothing, and can
// never close anything.
//
// A trip that can not be stored is kept: this instance goes on refusing until the
// open time is over. Each failure, and Flush, tries again to store it; a success after
// that time drops it, for the destination has recovered before anybody else heard of
// it. One call at a time tells the store of a destination.
//
// The registry is bounded; idle entries leave it, an open one never does. It starts no
// goroutine; the store and the callback are called from the goroutine of Done, outside
// of any lock. Metrics and logs are the caller's, who is told of each change it made.
package breaker
