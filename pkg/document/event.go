package document

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Event is the body of a message on posthouse.event.document.<state>.<channel>.<tenant>:
// one move or note, with all that a consumer needs to follow it. No participant
// and no payload, except what a verifier quotes in an issue. Events may repeat and
// need not come in order: keep the highest version seen of an id.
type Event struct {
	Schema         int              `json:"schema"` // 1
	Event          string           `json:"event"`  // delivery.EventID; also the headers Nats-Msg-Id and Posthouse-Event-Id
	Kind           string           `json:"kind"`   // "document"
	ID             delivery.ID      `json:"id"`
	Version        int              `json:"version"` // contiguous from 1
	State          State            `json:"state"`
	Cause          Cause            `json:"cause"`
	Tenant         string           `json:"tenant"`
	DocumentKind   Kind             `json:"document_kind"`
	SBDHInstanceID string           `json:"sbdh_instance_id"`
	AS4MessageID   string           `json:"as4_message_id"`
	Reference      string           `json:"reference,omitempty"`
	At             time.Time        `json:"at"`
	ReceivedAt     time.Time        `json:"received_at"`
	AS4At          time.Time        `json:"as4_timestamp"` // Facts.Origin
	Attempts       int              `json:"attempts"`      // to forward, so far
	DueAt          *time.Time       `json:"due_at,omitempty"`
	Verdict        Verdict          `json:"verdict,omitempty"`
	Issues         []Issue          `json:"issues,omitempty"` // with the move that found them
	Answer         *delivery.Answer `json:"answer,omitempty"` // of the attempt
	MLS            *MLS             `json:"mls,omitempty"`
	MLSDueAt       *time.Time       `json:"mls_due_at,omitempty"`
	C4Country      string           `json:"c4_country,omitempty"`
	Duplicate      string           `json:"duplicate,omitempty"` // as4, sbdh: stored and flagged
}

// NewEvent tells of a decision. f are the facts before it, version that of the
// document after it, at its time. What only the row knows (AS4 message id,
// attempts, answer, duplicate) the caller adds. A quiet decision has no event.
func NewEvent(f Facts, d Decision, version int, at time.Time) (*Event, error) {
	if d.Quiet || d.To == "" {
		return nil, fmt.Errorf("document %s: a quiet decision has no event", f.ID)
	}
	e := &Event{ID: f.ID, Version: version, State: d.To, Cause: d.Cause, Tenant: f.Tenant, DocumentKind: f.Kind, SBDHInstanceID: f.SBDHInstanceID, Reference: f.Reference,
		At: at, ReceivedAt: f.ReceivedAt, AS4At: f.Origin(), Verdict: d.Verdict, C4Country: d.C4Country}
	if d.Verdict != f.Verdict {
		e.Issues = d.Issues
	}
	if !d.Due.IsZero() {
		e.DueAt = &d.Due
	}
	if !d.MLSDue.IsZero() {
		e.MLSDueAt = &d.MLSDue
	}
	if d.MLS != (MLS{}) {
		e.MLS = &d.MLS
	}
	return e, nil
}

// Encode writes the wire form.
func (e *Event) Encode() ([]byte, error) {
	e.Schema, e.Event, e.Kind = 1, delivery.EventID(e.ID, e.Version), "document"
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
		return nil, fmt.Errorf("event: %w", decodeFault(err))
	}
	return &e, nil
}
