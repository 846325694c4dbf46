package localtest

import (
	"testing"
	"time"
)

// Eventually calls check about every ten milliseconds until it returns nil, and
// fails the test with its last error after timeout. It tries at least once.
func Eventually(t testing.TB, timeout time.Duration, check func() error) {
	t.Helper()
	late := time.NewTimer(timeout)
	defer late.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-late.C:
			t.Fatalf("not within %s: %v", timeout, err)
		case <-tick.C:
		}
	}
}
