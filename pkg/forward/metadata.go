package forward

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Metadata is what goes beside the bytes: the sidecar file, and part of the link
// of an object. Field names follow the events; the schema number rises when one
// changes its meaning.
type Metadata struct {
	Schema         int             `json:"schema"` // 1
	ID             delivery.ID     `json:"id"`
	Tenant         string          `json:"tenant"`
	SBDHInstanceID string          `json:"sbdh_instance_id"`
	AS4MessageID   string          `json:"as4_message_id"`
	SenderID       string          `json:"sender_id"`
	ReceiverID     string          `json:"receiver_id"`
	DocTypeID      string          `json:"document_type_id"`
	ProcessID      string          `json:"process_id"`
	C1Country      string          `json:"c1_country"`
	ReceivedAt     time.Time       `json:"received_at"`
	Verdict        string          `json:"verdict,omitempty"`
	Issues         json.RawMessage `json:"issues,omitempty"`
	ContentType    string          `json:"content_type"`
	Size           int64           `json:"size"`
	SHA256         string          `json:"sha256"` // hex, lower case
}

// Metadata describes the document; the attempt is left out, so that a repeat
// writes the same bytes.
func (d *Document) Metadata() Metadata {
	return Metadata{
		Schema: 1, ID: d.ID, Tenant: d.Tenant, SBDHInstanceID: d.SBDHInstanceID, AS4MessageID: d.AS4MessageID,
		SenderID: d.SenderID, ReceiverID: d.ReceiverID, DocTypeID: d.DocTypeID, ProcessID: d.ProcessID,
		C1Country: d.C1Country, ReceivedAt: d.ReceivedAt.UTC(), Verdict: d.Verdict, Issues: d.Issues,
		ContentType: d.Type(), Size: d.Size, SHA256: hex.EncodeToString(d.SHA256[:]),
	}
}

// Sidecar is the metadata as a file.
func (d *Document) Sidecar() ([]byte, error) {
	b, err := json.MarshalIndent(d.Metadata(), "", "  ")
	if err != nil {
		return nil, fmt.Errorf("document %s: metadata: %w", d.ID, err)
	}
	return append(b, '\n'), nil
}
