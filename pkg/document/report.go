package document

import (
	"errors"
	"fmt"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// What the backend's call to send an MLS may meet, in the order of the checks.
// Between the second and the third, the caller looks for the document.
var (
	ErrMLSDisabled    = errors.New("sending of MLS is turned off")  // HTTP 503
	ErrMLSInvalid     = errors.New("the MLS is not valid")          // 400
	ErrMLSNotEligible = errors.New("an MLS or MLR is not answered") // 422
	ErrMLSConflict    = errors.New("the document was answered")     // 409
)

// Reply says what came of a report.
type Reply string

const (
	ReplySent     Reply = "sent"     // a delivery was accepted
	ReplyRecorded Reply = "recorded" // positive, and the sender wants failures only
)

// Report is what the receiver backend says about a document.
type Report struct {
	Code   Code
	Text   string
	Issues []MLSIssue
}

// CheckReport is all that can be said without the document.
func (p *Policy) CheckReport(r Report) error {
	if !p.MLS {
		return ErrMLSDisabled
	}
	if _, err := ParseCode(string(r.Code)); err != nil {
		return fmt.Errorf("%w: %w", ErrMLSInvalid, err)
	}
	if len(r.Issues) > MaxIssues {
		return fmt.Errorf("%w: issues has %d entries, at most %d", ErrMLSInvalid, len(r.Issues), MaxIssues)
	}
	for i, l := range r.Issues {
		switch l.Reason {
		case SV, BV, BW, FD:
		default:
			return fmt.Errorf("%w: the status reason code of issue %d is %.16q, want SV, BV, BW or FD", ErrMLSInvalid, i+1, string(l.Reason))
		}
		if l.Field == "" || l.Text == "" {
			return fmt.Errorf("%w: issue %d needs an error field (%s if there is none) and a description", ErrMLSInvalid, i+1, NoField)
		}
	}
	if is := fatal(r.Issues); is != (r.Code == RE) {
		if is {
			return fmt.Errorf("%w: %s must not have an issue that is fatal (SV, BV, FD)", ErrMLSInvalid, r.Code)
		}
		return fmt.Errorf("%w: RE needs an issue that is fatal (SV, BV, FD)", ErrMLSInvalid)
	}
	return nil
}

// Report is what follows from the backend's word. The first word counts: whoever
// comes later gets ErrMLSConflict, also for a document that verification has
// rejected and that the backend only got to see.
func (f Facts) Report(r Report, p *Policy) (Decision, Reply, error) {
	if err := p.CheckReport(r); err != nil {
		return Decision{}, "", err
	}
	switch {
	case f.State == "":
		return Decision{}, "", f.refuse("mls")
	case f.Kind != Business:
		return Decision{}, "", fmt.Errorf("document %s: %w", f.ID, ErrMLSNotEligible)
	case f.MLS.Code != "" || f.Verdict == VerdictRejected:
		return Decision{}, "", fmt.Errorf("document %s: %w", f.ID, ErrMLSConflict)
	}
	d := f.keep(f.State, CauseMLS, Backend)
	d.Note = true
	d.MLS, d.Send = f.answer(situation{is: reported, report: r}, p)
	reply := ReplySent
	if d.Send == nil {
		reply = ReplyRecorded
	}
	return f.end(d, p), reply, nil
}

// mls are the lines, bounded.
func (r Report) mls() []MLSIssue {
	lines := make([]MLSIssue, len(r.Issues))
	for i, l := range r.Issues {
		lines[i] = MLSIssue{Reason: l.Reason, Field: clip(l.Field, MaxLocation), Text: delivery.Bound(l.Text)}
	}
	return lines
}
