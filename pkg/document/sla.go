package document

import "time"

// Goal is a service level of the Peppol network policy.
type Goal struct {
	Name   string
	Limit  time.Duration
	Target float64 // percent
}

// MLS1 is from the AS4 time stamp of a document that we received to that of the
// MLS that we sent.
func MLS1() Goal { return Goal{Name: "MLS-1", Limit: 20 * time.Minute, Target: 99.5} }

// MLS2 is from the AS4 time stamp of a document that we sent to the reception of
// its MLS.
func MLS2() Goal { return Goal{Name: "MLS-2", Limit: 25 * time.Minute, Target: 99.5} }

// SLAFact is one exchange. Only those belong here that need an answer: no MLS, no
// MLR, nothing suppressed.
type SLAFact struct {
	SBDHInstanceID string    `json:"sbdh_instance_id"`
	Start          time.Time `json:"start"`
	End            time.Time `json:"end,omitzero"` // zero: not answered yet
}

// SLAEntry is a fact with its judgement.
type SLAEntry struct {
	SLAFact
	Duration time.Duration `json:"duration"` // so far, when not answered
	Within   bool          `json:"within"`
	Open     bool          `json:"open"` // not answered, and still in time
}

// SLA are the figures of a period.
type SLA struct {
	Goal    Goal       `json:"goal"`
	Total   int        `json:"total"`   // answered, or too late already
	Within  int        `json:"within"`  // in time
	Late    int        `json:"late"`    // answered late
	Missing int        `json:"missing"` // too late and not answered
	Open    int        `json:"open"`    // not answered and still in time: in no other number
	Percent float64    `json:"percent"` // 100 when there is nothing to judge
	Met     bool       `json:"met"`
	Entries []SLAEntry `json:"entries,omitempty"`
}

// Measure judges the exchanges that started in [from, to) as seen at now; a zero
// bound is none. What is not answered and too late counts against the goal at
// once, rather than when an answer comes, if ever. An answer that is exactly at
// the limit is in time.
func (g Goal) Measure(facts []SLAFact, from, to, now time.Time) SLA {
	s := SLA{Goal: g, Percent: 100, Met: true}
	for _, f := range facts {
		if !from.IsZero() && f.Start.Before(from) || !to.IsZero() && !f.Start.Before(to) {
			continue
		}
		e := SLAEntry{SLAFact: f}
		answered := !f.End.IsZero() && !f.End.After(now)
		if answered {
			e.Duration = max(f.End.Sub(f.Start), 0) // the clocks are not the same one
		} else {
			e.Duration = max(now.Sub(f.Start), 0)
		}
		inTime := e.Duration <= g.Limit
		switch {
		case answered && inTime:
			e.Within = true
			s.Within++
		case answered:
			s.Late++
		case inTime:
			e.Open = true
			s.Open++
		default:
			s.Missing++
		}
		s.Entries = append(s.Entries, e)
	}
	if s.Total = s.Within + s.Late + s.Missing; s.Total > 0 {
		s.Percent = 100 * float64(s.Within) / float64(s.Total)
		// In tenths of a percent and whole numbers: 199 of 200 is 99.5.
		s.Met = s.Within*1000 >= int(g.Target*10+0.5)*s.Total
	}
	return s
}

// AlertAt is when somebody should be told that an answer is not out yet: lead
// before the limit, and never before the start.
func (g Goal) AlertAt(start time.Time, lead time.Duration) time.Time {
	return start.Add(max(g.Limit-lead, 0))
}
