package breaker

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"
)

// counter is the failures of one destination while it is closed: gobreaker's window
// in time, and our own in sends, which it has none of. It is used under the lock of
// its Set.
//
// The library asks only after a failure whether it is enough. So a share of failures
// that a success carries over the least number of sends opens nothing by itself: the
// next failure does. A destination that has just answered is not the moment to leave.
type counter struct {
	s      Settings
	cb     *gobreaker.TwoStepCircuitBreaker[any]
	ring   []bool // the last sends, true: failed
	next   int
	failed int // in a row or in the window, after the last result
}

func newCounter(s Settings) *counter {
	c := &counter{s: s}
	c.forget()
	return c
}

// forget begins anew, with the settings it was made with.
func (c *counter) forget() {
	c.ring, c.next, c.failed = nil, 0, 0
	if c.s.Executions > 0 && c.s.Period == 0 {
		c.ring = make([]bool, c.s.Executions)
	}
	// Its own open state is never waited for: the lane's row says when it ends.
	settings := gobreaker.Settings{ReadyToTrip: c.ready, Timeout: 365 * 24 * time.Hour}
	if c.s.Period > 0 {
		// Ten buckets make the window roll; one would let it jump.
		settings.Interval, settings.BucketPeriod = c.s.Period, max(c.s.Period/10, time.Millisecond)
	}
	c.cb = gobreaker.NewTwoStepCircuitBreaker[any](settings)
}

// errFailed is what the library is told of a failure.
var errFailed = errors.New("failed")

// add counts one result now, and tells whether it was one too many. Allow and done
// come together: the library drops a result whose window has turned meanwhile.
func (c *counter) add(success bool) (tripped bool) {
	if c.ring != nil {
		c.ring[c.next] = !success
		c.next = (c.next + 1) % len(c.ring)
	}
	done, err := c.cb.Allow()
	if err != nil {
		return true // it has tripped, and was not made to forget
	}
	if success {
		done(nil)
		c.failed = c.failures(c.cb.Counts())
		return false
	}
	done(errFailed)
	return c.cb.State() == gobreaker.StateOpen
}

// ready is asked by the library after each failure, under its lock: it may not ask
// the library back.
func (c *counter) ready(n gobreaker.Counts) bool {
	c.failed = c.failures(n)
	switch {
	case c.s.Rate > 0:
		return int(n.Requests) >= c.s.Executions && c.failed*100 >= c.s.Rate*int(n.Requests)
	case c.s.Period > 0:
		return int(n.Requests) >= c.s.Executions && c.failed >= c.s.Threshold
	}
	return c.failed >= c.s.Threshold
}

// failures is the number that the threshold is about.
func (c *counter) failures(n gobreaker.Counts) int {
	switch {
	case c.ring != nil:
		failed := 0
		for _, f := range c.ring {
			if f {
				failed++
			}
		}
		return failed
	case c.s.Period > 0:
		return int(n.TotalFailures)
	}
	return int(n.ConsecutiveFailures)
}
