package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
)

// History is all that the oracle judges by: four witnesses who do not know of each
// other, and what the settings of the run promised. It can be kept as a file and
// judged again.
type History struct {
	Rules     Rules            `json:"rules"`
	Published []Publication    `json:"published"` // the producers' log
	Taken     []smtpsink.Entry `json:"taken"`     // the mail server's ledger
	Book      Book             `json:"book"`      // the database
	Told      []Told           `json:"told"`      // the event stream
	Letters   []Told           `json:"letters"`   // the dead-letter stream
	Leaks     []string         `json:"leaks"`     // lines of logs that hold a payload or a secret, shortened
	Samples   []Sample         `json:"samples"`   // of the processes, while the load was on
}

// Rules are what holds in this run beyond what always holds.
type Rules struct {
	OnUnknown    string                   `json:"on_unknown"`    // policy: retry or hold
	NoUnknown    bool                     `json:"no_unknown"`    // no attempt may have an unknown outcome
	NoDuplicates bool                     `json:"no_duplicates"` // no recipient may have a mail twice
	Grace        time.Duration            `json:"grace"`         // I6: after a lease or a due time
	Dwell        map[string]time.Duration `json:"dwell"`         // I9: by tenant, 95 % are taken by the mail server within
	Marker       string                   `json:"marker"`        // I11: in every payload, and nowhere else; empty: not looked for
	Quiet        bool                     `json:"quiet"`         // the run came to rest in time
	Unrest       string                   `json:"unrest,omitempty"`
}

// Publication is one request as its producer saw it.
type Publication struct {
	Tenant     string           `json:"tenant"`
	RequestID  string           `json:"request_id"`
	Hash       string           `json:"hash"` // SHA-256 of the body, hexadecimal
	Poison     bool             `json:"poison,omitempty"`
	Recipients []string         `json:"recipients,omitempty"`
	Want       []delivery.State `json:"want,omitempty"` // final states that are right; none: any
	Began      time.Time        `json:"began"`
	Acked      time.Time        `json:"acked,omitzero"` // zero: nobody ever answered
	Tries      int              `json:"tries"`
}

// Book is what the database says.
type Book struct {
	Now        time.Time       `json:"now"` // of the database, when it was read
	Deliveries []BookDelivery  `json:"deliveries"`
	Recipients []BookRecipient `json:"recipients"`
	Attempts   []BookAttempt   `json:"attempts"`
	Events     []BookEvent     `json:"events"`
	Queue      []BookQueue     `json:"queue"`
	Keys       []BookKey       `json:"keys"`
	Letters    []BookLetter    `json:"letters"`
	Outbox     int             `json:"outbox"` // rows
}

// BookDelivery is one row of delivery.
type BookDelivery struct {
	ID        delivery.ID    `json:"id"`
	Tenant    string         `json:"tenant"`
	RequestID string         `json:"request_id"`
	State     delivery.State `json:"state"`
	Version   int            `json:"version"`
	Fence     int            `json:"fence"`
	Attempts  int            `json:"attempts"`
}

// BookRecipient is one row of recipient.
type BookRecipient struct {
	ID      delivery.ID             `json:"id"`
	Address string                  `json:"address"`
	State   delivery.RecipientState `json:"state"`
}

// BookAttempt is one row of attempt.
type BookAttempt struct {
	ID        delivery.ID `json:"id"`
	Fence     int         `json:"fence"`
	Number    int         `json:"number"`
	ClaimedAt time.Time   `json:"claimed_at,omitzero"`
	SettledAt time.Time   `json:"settled_at"`
	Verdict   string      `json:"verdict"`
	Answer    string      `json:"answer"`
}

// BookEvent is one row of event.
type BookEvent struct {
	ID      delivery.ID `json:"id"`
	Version int         `json:"version"`
	State   string      `json:"state"`
	Subject string      `json:"subject"`
	Body    []byte      `json:"body"`
	At      time.Time   `json:"at"`
}

// BookQueue is one row of queue, with what explains why it waits.
type BookQueue struct {
	ID         delivery.ID `json:"id"`
	State      string      `json:"state"`
	DueAt      time.Time   `json:"due_at"`
	LeaseUntil time.Time   `json:"lease_until,omitzero"` // of its owner; zero: no owner, or one that is gone
	Fence      int         `json:"fence"`
	LaneShut   bool        `json:"lane_shut,omitempty"` // shut or paused
}

// BookKey is one row of request_key.
type BookKey struct {
	Tenant    string      `json:"tenant"`
	RequestID string      `json:"request_id"`
	Hash      string      `json:"hash"`
	ID        delivery.ID `json:"id"`
}

// BookLetter is one row of dead_letter.
type BookLetter struct {
	EventID string `json:"event_id"`
	Source  string `json:"source"`
	Tenant  string `json:"tenant"`
	Code    string `json:"code"`
	RawHash string `json:"raw_hash,omitempty"` // SHA-256 of the raw bytes, hexadecimal
}

// Told is one message of a stream.
type Told struct {
	Sequence uint64    `json:"sequence"`
	At       time.Time `json:"at"`
	Subject  string    `json:"subject"`
	ID       string    `json:"id"` // header Posthouse-Event-Id
	Body     []byte    `json:"body"`
}

// Sample is what one process used at one moment.
type Sample struct {
	At      time.Time `json:"at"`
	Process string    `json:"process"` // name and incarnation: a restart begins anew
	RSS     int64     `json:"rss"`     // bytes
	Files   int       `json:"files"`   // open descriptors
	Threads int       `json:"threads"`
}

// Save writes a history as JSON.
func (h *History) Save(path string) error {
	text, err := json.Marshal(h)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("save history: %w", err)
	}
	return nil
}

// LoadHistory reads what Save wrote.
func LoadHistory(path string) (*History, error) {
	var h History
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	if err != nil {
		return nil, fmt.Errorf("load history: %w", err)
	}
	return &h, nil
}
