package lane

import (
	"time"

	"github.com/posthouse-io/posthouse/pkg/breaker"
)

// Gate is the lane as package breaker sees it.
func (v View) Gate() breaker.Gate {
	return breaker.Gate{ID: v.ID, Key: v.Key, State: breaker.State(v.Breaker), Version: v.Version, Until: v.ShutUntil, OpenedAt: v.OpenedAt, Failures: v.Failures, Cause: v.Cause, Forced: v.Forced}
}

// Message tells a person of a lane whose breaker is not closed.
func Message(v View, now time.Time) string { return breaker.Message(v.Gate(), now) }
