package forward

import (
	"context"
	"errors"
	"net/url"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Phases of an attempt, in the order in which they are reached.
const (
	PhasePayload delivery.Phase = "payload" // reading our own copy
	PhaseDial    delivery.Phase = "dial"
	PhaseAuth    delivery.Phase = "auth"
	PhaseUpload  delivery.Phase = "upload"
	PhaseFinal   delivery.Phase = "final" // the irreversible step has been taken
)

// Codes of failures that no answer of the other side carries.
const (
	CodeDocument        = "DOCUMENT_INCOMPLETE" // the caller left something out
	CodePayload         = "PAYLOAD_UNREADABLE"
	CodePayloadMismatch = "PAYLOAD_MISMATCH" // the bytes do not have the size or hash of the document
	CodePayloadTooLarge = "PAYLOAD_TOO_LARGE"
	CodeDial            = "DIAL_FAILED"
	CodeAddress         = "ADDRESS_REFUSED" // we do not connect to such an address
	CodeTLS             = "TLS_FAILED"
	CodeHostKey         = "HOST_KEY_REFUSED"
	CodeAuth            = "AUTH_FAILED"
	CodeLost            = "CONNECTION_LOST"
	CodeTimeout         = "TIMEOUT"
	CodeEarly           = "ANSWERED_EARLY"   // success was told before the whole document was there
	CodeAnswer          = "ANSWER_INVALID"   // success was told in words that are none
	CodeNoRetry         = "BACKEND_NO_RETRY" // the backend took a look and will never want it
	CodeStorage         = "STORAGE_FAILED"   // the file or object could not be written
	CodeInterrupted     = "INTERRUPTED"
)

// Outcome is all that one attempt reports. Of delivery.Outcome, Accepted means
// delivered, RemoteID is the key, path or position under which the backend finds
// the document, and Recipients stays empty.
type Outcome struct {
	delivery.Outcome
	Confirmed bool   // the backend itself answered, rather than a place where it will look
	NoRetry   bool   // the backend forbids another attempt
	C4Country string // country of the receiver, when the backend told it: two capitals
}

// Delivered is success.
func Delivered(remote, remoteID string) Outcome {
	return Outcome{Outcome: delivery.Outcome{Verdict: delivery.Accepted, Remote: remote, RemoteID: remoteID}}
}

// Refused is known not to have been delivered. onServer tells a failure of the
// backend or the way to it from one of this document.
func Refused(category delivery.Category, phase delivery.Phase, code, text string, onServer bool) Outcome {
	return Outcome{Outcome: delivery.Outcome{
		Verdict: delivery.Refused,
		Answer:  delivery.Answer{Category: category, Phase: phase, Code: code, Text: text}.Bounded(),
		Server:  onServer,
	}}
}

// Unsure is delivered or not: the answer did not arrive or makes no sense.
func Unsure(code, text string) Outcome {
	return Outcome{Outcome: delivery.Outcome{
		Verdict: delivery.Unknown,
		Answer:  delivery.Answer{Category: delivery.Transient, Phase: PhaseFinal, Code: code, Text: text}.Bounded(),
		Server:  true,
	}}
}

// Interrupted is stopped by ourselves before the irreversible step.
func Interrupted(phase delivery.Phase, err error) Outcome {
	return Outcome{Outcome: delivery.Outcome{
		Verdict: delivery.Interrupted,
		Answer:  delivery.Answer{Phase: phase, Code: CodeInterrupted, Text: Reason(err)}.Bounded(),
	}}
}

// Ended is the outcome of a ctx that has ended before the irreversible step;
// false while it lives. A time-out while our own payload is read says nothing
// about the server.
func Ended(ctx context.Context, phase delivery.Phase) (Outcome, bool) {
	switch err := ctx.Err(); {
	case err == nil:
		return Outcome{}, false
	case errors.Is(err, context.DeadlineExceeded):
		return Refused(delivery.Transient, phase, CodeTimeout, "time ran out before the document was handed over", phase != PhasePayload), true
	default:
		return Interrupted(phase, err), true
	}
}

// Reason is an error's text without the URL that net/http puts around it, which
// may hold what is secret.
func Reason(err error) string {
	var u *url.Error
	for errors.As(err, &u) {
		err = u.Err
	}
	if err == nil {
		return ""
	}
	return delivery.Bound(err.Error())
}
