package delivery

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// LaneState is a word in the subject of a lane's event.
type LaneState string

const (
	LaneOpen     LaneState = "open"      // its breaker has opened: nothing is sent
	LaneHalfOpen LaneState = "half_open" // a few sends probe it
	LaneClosed   LaneState = "closed"    // it works again
	LaneSlowed   LaneState = "slowed"    // its concurrency or rate was lowered
	LaneRaised   LaneState = "raised"    // and raised again
	LanePaused   LaneState = "paused"    // by an operator
	LaneResumed  LaneState = "resumed"
	LaneParked   LaneState = "parked" // opened since the account's credentials are refused
)

// LaneEvent is the body of a message on posthouse.event.lane.<state>.<channel>.<tenant>.
type LaneEvent struct {
	Schema  int        `json:"schema"` // 1
	Event   string     `json:"event"`  // "lane.<number>.<version>" or "pause.<scope>.<name>.<uuid>"
	Kind    string     `json:"kind"`   // "lane"
	State   LaneState  `json:"state"`
	Lane    string     `json:"lane,omitempty"` // its key; absent where a tenant or a channel is paused
	Channel string     `json:"channel"`        // _ where it concerns none
	Tenant  string     `json:"tenant"`         // _ where it concerns none
	Version int        `json:"version,omitempty"`
	At      time.Time  `json:"at"`
	Until   *time.Time `json:"until,omitempty"`
	Cause   string     `json:"cause,omitempty"`
	Text    string     `json:"text"` // for a person
	By      string     `json:"by,omitempty"`
	Cap     int        `json:"cap,omitempty"`      // in work at most over all instances
	RateCap int        `json:"rate_cap,omitempty"` // sends a minute at most
}

// LaneEventID names the event of one change of a lane.
func LaneEventID(lane int32, version int) string {
	return "lane." + strconv.Itoa(int(lane)) + "." + strconv.Itoa(version)
}

// Encode writes the wire form.
func (e *LaneEvent) Encode() ([]byte, error) {
	e.Schema, e.Kind = 1, "lane"
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", e.Event, err)
	}
	return b, nil
}

// LaneStatus is a lane as operators see it.
type LaneStatus struct {
	Key         string     `json:"key"`
	Breaker     string     `json:"breaker"` // closed, open, half_open
	Forced      bool       `json:"forced,omitempty"`
	OpenedAt    *time.Time `json:"opened_at,omitempty"`
	OpenUntil   *time.Time `json:"open_until,omitempty"`
	Remaining   float64    `json:"remaining_seconds,omitempty"`
	Failures    int        `json:"failures,omitempty"`
	Cause       string     `json:"cause,omitempty"`
	Message     string     `json:"message,omitempty"` // what a person reads
	InFlight    int        `json:"in_flight"`
	Ready       bool       `json:"ready"` // something waits there
	Cap         int        `json:"cap,omitempty"`
	CapReason   string     `json:"cap_reason,omitempty"`
	MaxInFlight int        `json:"max_in_flight,omitempty"`
	RateLimit   int        `json:"rate_limit_per_minute,omitempty"`
	RateCap     int        `json:"rate_cap_per_minute,omitempty"`
	DailyLimit  int        `json:"daily_send_limit,omitempty"`
	DayUsed     int        `json:"day_used,omitempty"` // today, UTC; counted while a limit is set
	FullUntil   *time.Time `json:"full_until,omitempty"`
	Paused      bool       `json:"paused,omitempty"`
	PausedUntil *time.Time `json:"paused_until,omitempty"`
	PausedWhy   string     `json:"paused_why,omitempty"`
	Version     int        `json:"version"`
}

// LaneFilter asks for lanes; an empty key means all.
type LaneFilter struct {
	Key     string `json:"key,omitempty"`
	Trouble bool   `json:"trouble,omitempty"` // only those that are not simply closed
}

// InstanceBreaker is a breaker as one sender sees it, where that says more than the
// lane's row: it has counted failures, refuses what the row lets through or the other
// way round, or has tripped and could not say so.
type InstanceBreaker struct {
	Instance string     `json:"instance"`
	Key      string     `json:"key"`
	State    string     `json:"state"`              // closed, open
	Row      string     `json:"row"`                // closed, open, half_open: what all instances share
	Until    *time.Time `json:"until,omitempty"`    // of an open one
	Failures int        `json:"failures,omitempty"` // counted there: in a row, or in the window
	Unsaved  bool       `json:"unsaved,omitempty"`  // it has tripped there, and the database does not know
	Cause    string     `json:"cause,omitempty"`    // the last failure of an open one
}

// LaneCommand opens a lane's breaker for a while, or forgets what it knows.
type LaneCommand struct {
	Warrant
	Key string   `json:"key"`
	For Duration `json:"for,omitzero"` // of an opening
}

// Check says what is wrong with it.
func (c LaneCommand) Check(opens bool) error {
	switch {
	case c.Key == "" || len(c.Key) > 300:
		return fmt.Errorf("key is empty or too long: `posthouse breaker list` shows the keys")
	case opens && c.For <= 0:
		return fmt.Errorf("for is missing: say how long it shall stay open, such as 30m")
	case opens && time.Duration(c.For) > 30*24*time.Hour:
		return fmt.Errorf("for: at most 720h; pause the lane to stop it without an end")
	}
	return c.check(true)
}

// PauseCommand pauses or resumes a lane, a tenant or a channel.
type PauseCommand struct {
	Warrant
	Scope string   `json:"scope"` // lane, tenant or channel
	Name  string   `json:"name"`  // a lane's key, a tenant, a channel
	For   Duration `json:"for,omitzero"`
}

// Check says what is wrong with it.
func (c PauseCommand) Check() error {
	switch {
	case c.Scope != "lane" && c.Scope != "tenant" && c.Scope != "channel":
		return fmt.Errorf("scope %.40q is not lane, tenant or channel", c.Scope)
	case c.Name == "" || len(c.Name) > 300:
		return fmt.Errorf("name is empty or too long")
	case c.For < 0:
		return fmt.Errorf("for is negative")
	case c.Scope != "lane" && !token(c.Name):
		return fmt.Errorf("name %.70q is no %s: want [A-Za-z0-9_-], at most %d bytes", c.Name, c.Scope, maxToken)
	}
	return c.check(true)
}

// Pause is a tenant or channel that rests.
type Pause struct {
	Scope string     `json:"scope"`
	Name  string     `json:"name"`
	Until *time.Time `json:"until,omitempty"` // absent: until resumed
	Why   string     `json:"why"`
	By    string     `json:"by"`
	Since time.Time  `json:"since"`
}

// Duration is a time.Duration that reads and writes as text, such as "30m".
type Duration time.Duration

// MarshalText writes it as Go does.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration reads.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}
