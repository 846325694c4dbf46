package document

import (
	"regexp"
	"strings"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// NoField is the error field of an issue that has no place in the document.
const NoField = "NA"

// MLSIssue is one line of the answer.
type MLSIssue struct {
	Reason Severity `json:"status_reason_code"` // SV, BV, BW, FD
	Field  string   `json:"error_field"`        // XPath, field name or NA
	Text   string   `json:"description"`
}

// MLSRequest is all that an AS4 delivery of an MLS needs, beside the address of
// our own access point.
type MLSRequest struct {
	Document  delivery.ID `json:"document"`
	Tenant    string      `json:"tenant"`
	Reference string      `json:"reference"` // SBDH instance id of the document
	Code      Code        `json:"code"`
	Text      string      `json:"text"`
	Issues    []MLSIssue  `json:"issues,omitempty"` // at least one fatal with RE, none fatal otherwise

	// Receiver is the participant to send to; Fallback the one to try when the first
	// is not registered, or empty. Both are empty when C2's certificate names no seat:
	// such an MLS cannot be delivered, and that is seen.
	Receiver string `json:"receiver"`
	Fallback string `json:"fallback,omitempty"`
}

func (f Facts) fill(r *MLSRequest) {
	r.Document, r.Tenant, r.Reference = f.ID, f.Tenant, f.SBDHInstanceID
	r.Text = delivery.Bound(r.Text)
	r.Receiver, r.Fallback = MLSReceiver(f.MLSTo, f.C2SeatID)
}

const (
	participantScheme = "iso6523-actorid-upis::"
	providerICD       = "0242:" // service providers in ISO 6523
)

var (
	seatID     = regexp.MustCompile(`^[Pp][A-Za-z]{2}([0-9]{6})$`)
	providerID = regexp.MustCompile(`^([0-9]{6})(-[0-9A-Za-z_]{3,12}(\.[0-9A-Za-z_]{1,24})?)?$`)
)

// MLSReceiver is where an answer to C2 goes. MLS_TO of the SBDH counts only if it
// is the id of a service provider whose main id is that of C2's seat (the number
// of POP000306), since otherwise a sender could have us write to strangers; else
// the provider's main id itself receives it.
func MLSReceiver(mlsTo, seat string) (receiver, fallback string) {
	m := seatID.FindStringSubmatch(seat)
	if m == nil {
		return "", ""
	}
	main := participantScheme + providerICD + m[1]
	value, ok := strings.CutPrefix(mlsTo, participantScheme+providerICD)
	if to := providerID.FindStringSubmatch(value); ok && to != nil && to[1] == m[1] && mlsTo != main {
		return mlsTo, main
	}
	return main, ""
}

// mlsIssues turns the verifiers' findings into lines of the answer.
func mlsIssues(issues []Issue) []MLSIssue {
	var lines []MLSIssue
	for _, i := range worst(issues) {
		reason := i.Severity
		switch reason {
		case SV, BV, BW, FD:
		default:
			reason = BV
		}
		field := i.Location
		if field == "" {
			field = NoField
		}
		text := strings.TrimSpace(i.Code + " " + i.Text)
		if text == "" {
			text = "no description"
		}
		lines = append(lines, MLSIssue{Reason: reason, Field: field, Text: delivery.Bound(text)})
	}
	return lines
}

// fatal tells whether one of the lines rejects.
func fatal(lines []MLSIssue) bool {
	for _, l := range lines {
		if l.Reason != BW {
			return true
		}
	}
	return false
}
