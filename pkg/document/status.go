package document

import (
	"encoding/json"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Status is all that is known of one document, on posthouse.ops.forwarder.status.
type Status struct {
	ID             delivery.ID        `json:"id"`
	Tenant         string             `json:"tenant"`
	Kind           Kind               `json:"document_kind"`
	SBDHInstanceID string             `json:"sbdh_instance_id"`
	AS4MessageID   string             `json:"as4_message_id"`
	SenderID       string             `json:"sender_id"`
	ReceiverID     string             `json:"receiver_id"`
	State          State              `json:"state"`
	Version        int                `json:"version"`
	Attempts       int                `json:"attempts"`
	Verdict        Verdict            `json:"verdict,omitempty"`
	Issues         json.RawMessage    `json:"issues,omitempty"`
	C4Country      string             `json:"c4_country,omitempty"`
	MLS            MLS                `json:"mls"`
	Duplicate      string             `json:"duplicate,omitempty"`
	ReceivedAt     time.Time          `json:"received_at"`
	AS4At          time.Time          `json:"as4_timestamp"`
	ChangedAt      time.Time          `json:"changed_at"`
	Size           int64              `json:"size"`
	Answer         json.RawMessage    `json:"answer,omitempty"` // of the last attempt
	Gate           delivery.Gate      `json:"gate"`
	Tried          []delivery.Attempt `json:"tried,omitempty"`
	Journey        []delivery.Step    `json:"journey,omitempty"`
}
