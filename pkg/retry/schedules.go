package retry

import "github.com/posthouse-io/posthouse/pkg/delivery"

// Schedules are the policies of one channel: one for all, and what a class of
// requests has of its own. A login code is worth little after a few minutes; a
// newsletter can wait for hours.
type Schedules struct {
	Default Policy
	Class   map[delivery.Class]Policy
}

// For is the policy of a class.
func (s Schedules) For(class delivery.Class) Policy {
	if p, ok := s.Class[class]; ok {
		return p
	}
	return s.Default
}
