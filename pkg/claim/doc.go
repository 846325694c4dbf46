// Package claim takes due work from the queue and keeps the leases of what it
// took, for any kind of work.
//
// It decides whose turn it is (Turns, pure) and when to look (Loop): when it is
// told of new work, when the earliest waiting row falls due, and at a jittered
// poll, which is the truth that the other two only anticipate. It takes only
// what a free slot can start now, so nothing waits in memory under a lease.
//
//	lanes take turns -> tenants of the lane take turns -> classes of the tenant -> due time
//
// One lease covers all that a loop holds: a worker row that a heartbeat renews.
// A loop whose lease lapses (stopped process, database away) assumes that others
// have its work: it cancels what has not passed the point of no return and comes
// back under a new worker id. What the database says, through the fence, decides;
// the loop's own clock only makes it stop early.
//
// Run owns every goroutine and returns when all have ended: it stops taking when
// its first context ends and stops working when the second does.
package claim
