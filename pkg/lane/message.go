package lane

import (
	"fmt"
	"time"
)

// Message tells a person of a lane whose breaker is not closed.
func Message(v View, now time.Time) string {
	return fmt.Sprintf("%s %s %s %s", v.Key, v.Breaker, v.OpenedAt, v.Cause)
}
