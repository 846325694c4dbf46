package docket

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/lane"
)

// Claimed is one document under a lease, or under a lock.
type Claimed struct {
	document.Facts
	Lane      int32
	Class     int16
	Worker    uuid.UUID
	Fence     int32
	ClaimedAt time.Time // the database's clock
	DueAt     time.Time
	Version   int32
	Attempts  int // begun so far; failures: those that count
	Failures  int
	Gate      lane.View // of its lane, as the claim found it

	AS4MessageID, SenderID, ReceiverID, DocTypeID, ProcessID string
	C1Country, ContentType                                   string
	Size                                                     int64
	Hash                                                     []byte
	Trace                                                    string
}

// Key names it in the queue.
func (c Claimed) Key() [16]byte { return c.ID }

// Group is where the claim found it.
func (c Claimed) Group() claim.Group {
	return claim.Group{Lane: c.Lane, Tenant: c.Tenant, Class: c.Class}
}

// Due is since when it was ready, for the low-water mark.
func (c Claimed) Due() time.Time { return c.DueAt }

// Since is when it was claimed.
func (c Claimed) Since() time.Time { return c.ClaimedAt }

// scan reads the columns that all statements of this room share.
func scan(row func(...any) error, c *Claimed, more ...any) error {
	var id [16]byte
	var mlsDelivery *[16]byte
	var issues []byte
	err := row(append([]any{&id, &c.Lane, &c.Class, &c.Fence, &c.ClaimedAt, &c.DueAt,
		&c.Tenant, &c.Kind, &c.SBDHInstanceID, &c.AS4MessageID, &c.SenderID, &c.ReceiverID, &c.DocTypeID, &c.ProcessID, &c.C1Country, &c.C2SeatID, &c.C4Country,
		&c.ContentType, &c.Reference, &c.ReceivedAt, &c.AS4At, &c.Size, &c.Hash, &c.State, &c.Version, &c.Attempts, &c.Failures, &c.Verdict, &issues,
		&c.MLSType, &c.MLSTo, &c.MLS.Status, &c.MLS.Code, &mlsDelivery, &c.Trace}, more...)...)
	if err != nil {
		return err
	}
	c.ID = id
	if mlsDelivery != nil {
		c.MLS.Delivery = *mlsDelivery
	}
	if len(issues) > 0 {
		return json.Unmarshal(issues, &c.Issues)
	}
	return nil
}

// Reader opens the document's bytes, as often as it is asked.
func (c Claimed) Reader(d *Docket) func(context.Context) (io.ReadCloser, error) {
	return func(ctx context.Context) (io.ReadCloser, error) {
		body, err := d.Body(ctx, c.ID)
		if err != nil {
			return nil, err
		}
		return io.NopCloser(bytes.NewReader(body)), nil
	}
}

// Attempt is what one attempt to forward has shown, for its row.
type Attempt struct {
	Verdict  delivery.Verdict
	Answer   delivery.Answer
	Peer     string
	RemoteID string
}

// stored is the JSON of the attempt's row; verdict only of one that came too late.
func (a *Attempt) stored(verdict string) ([]byte, error) {
	return json.Marshal(struct {
		delivery.Answer
		Peer     string `json:"peer,omitempty"`
		RemoteID string `json:"remote_id,omitempty"`
		Verdict  string `json:"verdict,omitempty"`
	}{a.Answer.Bounded(), delivery.Bound(a.Peer), delivery.Bound(a.RemoteID), verdict})
}
