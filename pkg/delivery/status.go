package delivery

import (
	"encoding/json"
	"time"
)

// Lookup asks for one delivery: by our id, or by the client's id and its tenant.
// It is the request of posthouse.ops.sender.status, Status the answer.
type Lookup struct {
	ID     string `json:"id"`
	Tenant string `json:"tenant,omitempty"`
}

// Status is all that is known of one delivery, without its payload and without
// addresses.
type Status struct {
	ID         ID                `json:"id"`
	RequestID  string            `json:"request_id"`
	Tenant     string            `json:"tenant"`
	Channel    Channel           `json:"channel"`
	Class      string            `json:"class"`
	State      State             `json:"state"`
	InWork     bool              `json:"in_work"` // under a lease: the seed's "sending"
	Version    int               `json:"version"`
	Attempts   int               `json:"attempts"`
	Retries    int               `json:"retries"`
	AcceptedAt time.Time         `json:"accepted_at"`
	ChangedAt  time.Time         `json:"changed_at"`
	ExpiresAt  *time.Time        `json:"expires_at,omitempty"`
	Lane       string            `json:"lane"`
	Answer     json.RawMessage   `json:"answer,omitempty"`
	Recipients []RecipientStatus `json:"recipients"`
	Tried      []Attempt         `json:"tried"`
	Journey    []Step            `json:"journey"`
	Gate       Gate              `json:"gate"`
}

// Attempt is one attempt as the book has it.
type Attempt struct {
	Number    int             `json:"number"`
	Fence     int             `json:"fence"`
	ClaimedAt *time.Time      `json:"claimed_at,omitempty"`
	SettledAt time.Time       `json:"settled_at"`
	Verdict   string          `json:"verdict"`
	Answer    json.RawMessage `json:"answer"`
}

// Step is one change of state.
type Step struct {
	Version int       `json:"version"`
	State   State     `json:"state"`
	At      time.Time `json:"at"`
}

// Gate says what holds a delivery now, until when, and what would let it go.
type Gate struct {
	Name    string     `json:"name"` // final, held, in_work, lapsed, blocked, paused, shut, waiting, no_sender, prepare, ready
	Until   *time.Time `json:"until,omitempty"`
	Why     string     `json:"why"`
	Release string     `json:"release"`
}
