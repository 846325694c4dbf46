package daemon

import (
	"context"
	"time"
)

// Outlive gives a context for the storing of results: it lives on for a while after
// working has ended, so that what was done is written down. Call end when nothing is
// left to store.
func Outlive(working context.Context, by time.Duration) (storing context.Context, end func()) {
	storing, cancel := context.WithCancel(context.WithoutCancel(working))
	stop := context.AfterFunc(working, func() {
		t := time.NewTimer(by)
		defer t.Stop()
		select {
		case <-t.C:
			cancel()
		case <-storing.Done():
		}
	})
	return storing, func() { stop(); cancel() }
}
