package delivery

import (
	"encoding/json"
	"fmt"
	"time"
)

// Alert is the body of a message on posthouse.event.alert.<raised|cleared>.<channel>.<tenant>:
// something is not as it should be, or is so again. Each is raised once and
// cleared once, however many watchdogs look. The schema is
// streams/schema/event.alert.json.
type Alert struct {
	Schema    int        `json:"schema"` // 1
	Event     string     `json:"event"`  // "alert.<name>.<version>"; also the headers Nats-Msg-Id and Posthouse-Event-Id
	Kind      string     `json:"kind"`   // "alert"
	Name      string     `json:"name"`   // outbox_age, ready_wait, consumer_stalled-sender, ...
	Version   int        `json:"version"`
	State     AlertState `json:"state"`
	Channel   string     `json:"channel"` // _ where it concerns none
	Tenant    string     `json:"tenant"`  // _ where it concerns none
	At        time.Time  `json:"at"`
	Value     float64    `json:"value"`
	Threshold float64    `json:"threshold"`
	Unit      string     `json:"unit"` // seconds, rows, transactions
	Text      string     `json:"text"` // for a person
}

// AlertState is whether something is wrong.
type AlertState string

const (
	AlertRaised  AlertState = "raised"
	AlertCleared AlertState = "cleared"
)

// Encode writes the wire form.
func (a *Alert) Encode() ([]byte, error) {
	a.Schema, a.Kind, a.Event, a.Text = 1, "alert", fmt.Sprintf("alert.%s.%d", a.Name, a.Version), Bound(a.Text)
	b, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("alert %s: %w", a.Event, err)
	}
	return b, nil
}

// Alarm is where one alarm stands: the answer of posthouse.ops.watchdog.alarms is
// a list of them.
type Alarm struct {
	Name      string    `json:"name"`
	Raised    bool      `json:"raised"`
	Version   int       `json:"version"`
	Value     float64   `json:"value"` // at the last change
	Text      string    `json:"text"`
	ChangedAt time.Time `json:"changed_at"`
}

// Reconciliation is what one comparison of the event table with the event stream
// found and mended: the answer of posthouse.ops.watchdog.reconciliation.
type Reconciliation struct {
	From       time.Time `json:"from"` // events booked from here
	To         time.Time `json:"to"`   // until before here
	Booked     int64     `json:"booked"`
	Missing    int64     `json:"missing"`  // booked, not in the outbox, not in the stream
	Repaired   int64     `json:"repaired"` // of these, published again
	Pending    int64     `json:"pending"`  // booked and still in the outbox
	Repeats    int64     `json:"repeats"`  // messages of the stream beyond the first of an event
	Unknown    int64     `json:"unknown"`  // messages that name no event of the book: reported, never deleted
	UnknownIDs []string  `json:"unknown_ids,omitempty"`
	Gaps       []Gap     `json:"gaps,omitempty"` // when those that were missing had been booked
	Complete   bool      `json:"complete"`       // all that the stream should hold was compared, not only what is new
	Seconds    float64   `json:"seconds"`
	FinishedAt time.Time `json:"finished_at"`

	StreamCreated time.Time `json:"stream_created"`
	StreamLast    uint64    `json:"stream_last"` // sequence
}

// Gap is a stretch of five minutes with missing events.
type Gap struct {
	At      time.Time `json:"at"`
	Missing int64     `json:"missing"`
}

// ReplayRequest asks for events to be published again, on
// posthouse.ops.watchdog.replay. Empty fields match all.
type ReplayRequest struct {
	Since  time.Time  `json:"since"`
	Until  *time.Time `json:"until,omitempty"` // absent: until now
	Tenant string     `json:"tenant,omitempty"`
	State  string     `json:"state,omitempty"`
	By     string     `json:"by"`
	DryRun bool       `json:"dry_run,omitempty"` // count only
}

// Replay is where a replay stands.
type Replay struct {
	ID         *ID        `json:"id,omitempty"` // none for a dry run
	Since      time.Time  `json:"since"`
	Until      time.Time  `json:"until"`
	Tenant     string     `json:"tenant,omitempty"`
	State      string     `json:"state,omitempty"`
	By         string     `json:"by"`
	Status     string     `json:"status"`  // running, done, cancelled; dry_run
	Reached    time.Time  `json:"reached"` // everything before is published
	Total      *int64     `json:"total"`   // null: too many to count in a moment
	Published  int64      `json:"published"`
	Fault      string     `json:"fault,omitempty"` // why it does not move just now
	CreatedAt  *time.Time `json:"created_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
}

// ReplayLookup names a replay, on posthouse.ops.watchdog.replays (empty: the last
// ones) and posthouse.ops.watchdog.replay-cancel.
type ReplayLookup struct {
	ID string `json:"id,omitempty"`
}
