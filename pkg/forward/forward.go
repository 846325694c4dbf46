package forward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Forwarder delivers one document. It returns exactly one Outcome and no error;
// it honours ctx, whose end before the irreversible step is Interrupted when we
// ended it (context.Canceled) and a transient refusal when it timed out. It may
// be called from many goroutines.
type Forwarder interface {
	Forward(ctx context.Context, d Document) Outcome
	Close() error
}

// Verdicts of the verification that go with a document.
const (
	VerdictPassed     = "passed"
	VerdictRejected   = "rejected"
	VerdictUnverified = "unverified" // the verifier was away and the policy lets it pass
)

// XML is the content type of a document that names none: an SBDH and its
// payload.
const XML = "application/xml"

// Document is all that one attempt needs. The texts come from the other side and
// may hold anything; Escape and the forwarders make them safe.
type Document struct {
	ID             delivery.ID // the same over all attempts: idempotency key and part of each name
	Tenant         string
	Attempt        int // 1 for the first
	SBDHInstanceID string
	AS4MessageID   string
	SenderID       string // scheme::value, as received
	ReceiverID     string
	DocTypeID      string
	ProcessID      string
	C1Country      string // ISO 3166-1 alpha-2; ZZ when the sender did not say
	ReceivedAt     time.Time
	Verdict        string          // passed, rejected, unverified, or empty: never verified
	Issues         json.RawMessage // what the verifiers found: a JSON array, or nothing
	Traceparent    string          // W3C trace context, or empty

	ContentType string // empty means XML
	Size        int64  // bytes, at least 1
	SHA256      [32]byte

	// Open starts reading the payload from its first byte, as often as it is asked.
	// A Read that is waiting must return when ctx ends.
	Open func(ctx context.Context) (io.ReadCloser, error)

	// Proceed is asked immediately before each step that cannot be taken back. An
	// error means: stop now, that step was not taken.
	Proceed func() error
}

// Check names what is missing.
func (d *Document) Check() error {
	var faults []error
	for _, f := range []struct {
		wrong bool
		text  string
	}{
		{d.ID == delivery.ID{}, "has no id"},
		{d.Attempt < 1, "has no attempt number"},
		{d.ReceivedAt.IsZero(), "has no time of reception"},
		{d.Size < 1, "is empty"},
		{d.Open == nil, "cannot be opened"},
		{d.Proceed == nil, "has no Proceed"},
		{len(d.Issues) > 0 && !json.Valid(d.Issues), "has issues that are not JSON"},
	} {
		if f.wrong {
			faults = append(faults, fmt.Errorf("document %s %s", d.ID, f.text))
		}
	}
	return errors.Join(faults...)
}

// Type is the content type.
func (d *Document) Type() string {
	if d.ContentType == "" {
		return XML
	}
	return d.ContentType
}
