package delivery

import (
	"encoding/json"
	"time"
)

// Letter is a dead letter as it stands on posthouse.dlq.<source>.<channel>.<tenant>
// and in lists: a summary and a reference, never the raw bytes. The schema is
// streams/schema/dlq.json.
type Letter struct {
	Schema     int             `json:"schema"` // 1
	EventID    string          `json:"event"`  // key of the archive; the message's id is "dlq." and this
	Source     string          `json:"source"` // send_exhausted, send_failed, expired, held, poison, ...
	Channel    string          `json:"channel"`
	Tenant     string          `json:"tenant"`
	ID         *ID             `json:"id,omitempty"`
	RequestID  string          `json:"request_id,omitempty"`
	Code       string          `json:"code,omitempty"`
	Reason     string          `json:"reason"`
	Summary    json.RawMessage `json:"summary,omitempty"` // the event that ended it
	Triage     string          `json:"triage,omitempty"`  // open, resolved, discarded
	Remark     string          `json:"remark,omitempty"`
	ArchivedAt *time.Time      `json:"archived_at,omitempty"`
}

// LetterFilter narrows a list of letters; zero fields match all. It is the
// request of posthouse.ops.dead-letter.list.
type LetterFilter struct {
	Tenant   string `json:"tenant,omitempty"`
	Source   string `json:"source,omitempty"`
	OpenOnly bool   `json:"open_only,omitempty"`
	Limit    int    `json:"limit,omitempty"` // default 50, at most 1000
}
