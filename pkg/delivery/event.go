package delivery

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Event is the body of a message on posthouse.event.delivery.<state>.<channel>.<tenant>:
// one change of state, with all that a consumer needs to follow it. No address
// and no payload. The schema is streams/schema/event.delivery.json.
type Event struct {
	Schema     int               `json:"schema"` // 1
	Event      string            `json:"event"`  // EventID; also the headers Nats-Msg-Id and Posthouse-Event-Id
	Kind       string            `json:"kind"`   // "delivery"
	ID         ID                `json:"id"`
	Version    int               `json:"version"` // contiguous from 1: keep the highest seen
	State      State             `json:"state"`
	Tenant     string            `json:"tenant"`
	Channel    Channel           `json:"channel"`
	RequestID  string            `json:"request_id"`
	Class      string            `json:"class"`
	At         time.Time         `json:"at"`
	Attempts   int               `json:"attempts"`
	Cause      string            `json:"cause,omitempty"`
	DueAt      *time.Time        `json:"due_at,omitempty"` // state retry, or pending with send_at
	Answer     *Answer           `json:"answer,omitempty"`
	Recipients []RecipientStatus `json:"recipients,omitempty"`
	Custom     json.RawMessage   `json:"custom,omitempty"`
}

// RecipientStatus tells of one envelope recipient by its position.
type RecipientStatus struct {
	Ordinal int            `json:"ordinal"`
	State   RecipientState `json:"state"`
	Code    string         `json:"code,omitempty"`
	Text    string         `json:"text,omitempty"`
}

// RecipientState is where one envelope recipient stands.
type RecipientState string

const (
	RecipientPending  RecipientState = "pending"
	RecipientAccepted RecipientState = "accepted"
	RecipientRefused  RecipientState = "refused"
)

// EventID names the event of one version of a delivery: "<id>.<version>".
func EventID(id ID, version int) string { return id.String() + "." + strconv.Itoa(version) }

// ParseEventID takes an EventID apart.
func ParseEventID(s string) (ID, int, error) {
	head, tail, ok := strings.Cut(s, ".")
	id, err := ParseID(head)
	version, verr := strconv.Atoi(tail)
	if !ok || err != nil || verr != nil || version < 1 {
		return ID{}, 0, fmt.Errorf("%.80q is not an event id (<delivery id>.<version>)", s)
	}
	return id, version, nil
}

// Encode writes the wire form.
func (e *Event) Encode() ([]byte, error) {
	e.Schema, e.Event, e.Kind = 1, EventID(e.ID, e.Version), "delivery"
	b, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", e.Event, err)
	}
	return b, nil
}

// DecodeEvent reads the wire form; fields of later schemas are ignored.
func DecodeEvent(b []byte) (*Event, error) {
	var e Event
	if err := json.Unmarshal(b, &e); err != nil {
		return nil, fmt.Errorf("event: %w", err)
	}
	return &e, nil
}
