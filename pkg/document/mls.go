package document

import (
	"fmt"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Code is the answer of a Message Level Status. Empty means not decided.
type Code string

const (
	AP Code = "AP" // delivered and confirmed
	AB Code = "AB" // taken, delivery not confirmed
	RE Code = "RE" // rejected, with at least one fatal issue
)

// ParseCode reads a code.
func ParseCode(s string) (Code, error) {
	switch c := Code(s); c {
	case AP, AB, RE:
		return c, nil
	}
	return "", fmt.Errorf("code is %.16q, want AP, AB or RE", s)
}

// MLSType says which answers the sender wants.
type MLSType string

const (
	AlwaysSend  MLSType = "ALWAYS_SEND"
	FailureOnly MLSType = "FAILURE_ONLY" // positive ones are recorded, not sent
)

// MLSTypeFor is the type that counts for a document whose SBDH says sbdh. It is
// decided at reception and kept, so that a changed setting does not change what
// was promised.
func (p *Policy) MLSTypeFor(sbdh MLSType) MLSType {
	if p.MLSTypeFrom == TypeSBDH && (sbdh == AlwaysSend || sbdh == FailureOnly) {
		return sbdh
	}
	return p.MLSType
}

// MLSStatus is the sub-state of a document: how far its answer to C2 has got.
type MLSStatus string

const (
	MLSNone          MLSStatus = ""               // nothing to say yet
	MLSWaiting       MLSStatus = "waiting"        // forwarded; the backend shall say what, until the deadline
	MLSClaimed       MLSStatus = "claimed"        // decided; a delivery carries it
	MLSSent          MLSStatus = "sent"           // C2 has it
	MLSUndeliverable MLSStatus = "undeliverable"  // the delivery ended without success
	MLSSuppressed    MLSStatus = "suppressed"     // FAILURE_ONLY: nothing positive goes out, nothing is missing
	MLSOff           MLSStatus = "off"            // it would have been sent, and sending is turned off
	MLSNotApplicable MLSStatus = "not_applicable" // an MLS or MLR is never answered
)

// MLSStatuses lists every sub-state.
func MLSStatuses() []MLSStatus {
	return []MLSStatus{MLSNone, MLSWaiting, MLSClaimed, MLSSent, MLSUndeliverable, MLSSuppressed, MLSOff, MLSNotApplicable}
}

// MLS is the sub-state with its answer. A Code that is set never changes: who
// writes it compares it with empty in the same transaction.
type MLS struct {
	Status   MLSStatus   `json:"status,omitempty"`
	Code     Code        `json:"code,omitempty"`
	Delivery delivery.ID `json:"delivery,omitzero"` // that carries it; the caller fills it in when it accepts Decision.Send
}

// Missing tells whether C2 still waits for an answer that we owe.
func (f Facts) Missing() bool {
	return f.Kind == Business && f.State == Forwarded && f.MLS.Code == "" && f.Verdict != VerdictRejected && f.MLSType != FailureOnly
}

// occasion is what makes us think of an answer. The zero value is none.
type occasion int

const (
	noOccasion           occasion = iota
	verificationRejected          // by a verifier, or by the fail mode
	forwarded
	forwardingExhausted // or no forwarder at all
	forwardingRefused   // the backend will never take it
	reported            // by the backend
	overdue             // the backend is silent
)

type situation struct {
	is        occasion
	confirmed bool   // of forwarded
	report    Report // of reported
}

// answer is the one place where it is decided what C2 is told: at most once per
// document, never about an MLS or MLR, never something positive about a document
// that verification rejected. f are the facts after the move that is the occasion.
func (f Facts) answer(s situation, p *Policy) (MLS, *MLSRequest) {
	switch {
	case f.Kind != Business:
		return MLS{Status: MLSNotApplicable}, nil
	case f.MLS.Code != "":
		return f.MLS, nil
	case s.is != verificationRejected && f.Verdict == VerdictRejected:
		return f.MLS, nil
	case !p.MLS:
		return MLS{Status: MLSOff}, nil
	}
	var r MLSRequest
	switch s.is {
	case verificationRejected:
		r.Code, r.Text, r.Issues = RE, "the document was rejected by verification", mlsIssues(f.Issues)
		if !fatal(r.Issues) { // an RE without a reason is not valid
			r.Issues = append([]MLSIssue{{Reason: BV, Field: NoField, Text: r.Text}}, r.Issues...)
		}
	case forwarded:
		switch {
		case p.Trigger == TriggerAPI && f.MLSType == FailureOnly:
			// The backend may still reject it, so the code stays free.
			return MLS{Status: MLSSuppressed}, nil
		case p.Trigger == TriggerAPI:
			return MLS{Status: MLSWaiting}, nil
		case s.confirmed:
			r.Code, r.Text = AP, "the document was delivered"
		default:
			r.Code, r.Text = AB, "the document was forwarded, its delivery cannot be confirmed"
		}
		r.Issues = mlsIssues(f.Issues)
	case forwardingExhausted:
		r.Code, r.Text = AB, "the document was accepted, forwarding it failed for now"
	case forwardingRefused:
		r.Code, r.Text = AB, "the document was accepted, forwarding it failed for now"
		if p.RefusedCode == RE {
			r.Code, r.Text = RE, "the document could not be delivered"
			r.Issues = []MLSIssue{{Reason: FD, Field: NoField, Text: "the receiver does not take the document"}}
		}
	case reported:
		r.Code, r.Text, r.Issues = s.report.Code, s.report.Text, s.report.mls()
	case overdue:
		r.Code, r.Text = p.APICode, "the document was accepted, its delivery was not confirmed in time"
		if p.APICode == RE {
			r.Issues = []MLSIssue{{Reason: FD, Field: NoField, Text: "the delivery was not confirmed in time"}}
		}
	default:
		return f.MLS, nil
	}
	if r.Code != RE && f.MLSType == FailureOnly {
		return MLS{Status: MLSSuppressed, Code: r.Code}, nil
	}
	f.fill(&r)
	return MLS{Status: MLSClaimed, Code: r.Code}, &r
}

// MLSOutcome notes how the delivery that carries the answer ended. One that was
// retried by hand may still succeed.
func (f Facts) MLSOutcome(sent bool, p *Policy) (Decision, error) {
	if f.MLS.Status != MLSClaimed && (f.MLS.Status != MLSUndeliverable || !sent) {
		return Decision{}, fmt.Errorf("document %s: mls outcome in sub-state %q: %w", f.ID, f.MLS.Status, ErrState)
	}
	d := f.keep(f.State, CauseMLSOutcome, Sender)
	d.Note = true
	d.MLS.Status = MLSSent
	if !sent {
		d.MLS.Status, d.Letter = MLSUndeliverable, LetterMLSOverdue
	}
	return f.end(d, p), nil
}
