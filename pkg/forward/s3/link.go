package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
)

// Link is what the backend is told: where the object lies, and what it is.
type Link struct {
	Schema   int              `json:"schema"` // 1
	Bucket   string           `json:"bucket"`
	Key      string           `json:"key"`
	Endpoint string           `json:"endpoint,omitempty"` // empty: Amazon's
	Region   string           `json:"region,omitempty"`
	Document forward.Metadata `json:"document"`
}

// notify delivers the link as a document of its own, under the same id.
func (f *Forwarder) notify(ctx context.Context, d forward.Document, key string) forward.Outcome {
	body, err := json.Marshal(Link{
		Schema: 1, Bucket: f.cfg.Bucket, Key: key, Endpoint: f.cfg.Endpoint, Region: f.cfg.Region, Document: d.Metadata(),
	})
	if err != nil {
		return forward.Refused(delivery.InvalidInput, forward.PhasePayload, forward.CodeDocument, forward.Reason(err), false)
	}
	d.ContentType, d.Size, d.SHA256 = "application/json", int64(len(body)), sha256.Sum256(body)
	d.Open = func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	return f.notifier.Forward(ctx, d)
}
