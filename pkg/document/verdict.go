package document

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Verdict is what verification says: of one verifier's answer passed, rejected or
// unavailable; of a document none, passed, rejected or unverified. The zero value
// of an answer means unknown and counts as unavailable; it never means passed.
type Verdict string

const (
	VerdictNone        Verdict = ""            // never verified
	VerdictPassed      Verdict = "passed"      // no objection
	VerdictRejected    Verdict = "rejected"    // or an outage that the fail mode treats so
	VerdictUnavailable Verdict = "unavailable" // no answer to rely on
	VerdictUnverified  Verdict = "unverified"  // let through without an answer
)

// Severity is the kind of a finding: a status reason code of the MLS.
type Severity string

const (
	SV Severity = "SV" // syntax (XSD)
	BV Severity = "BV" // fatal business rule (Schematron error)
	BW Severity = "BW" // warning: does not reject
	FD Severity = "FD" // failed delivery; never of a verifier
)

// Bounds of what verifiers and backends may find.
const (
	MaxIssues   = 100 // of one document; the most severe stay
	MaxCode     = 100 // bytes
	MaxLocation = 500
)

// Issue is one finding.
type Issue struct {
	Code     string   `json:"code,omitempty"`     // the verifier's own name of the rule, such as BR-CO-15
	Severity Severity `json:"severity"`           // SV, BV, BW
	Text     string   `json:"text,omitempty"`     // for people, at most delivery.MaxText bytes
	Location string   `json:"location,omitempty"` // XPath or field name
}

// Fatal tells whether the finding alone rejects a document. An unknown severity
// does.
func (i Issue) Fatal() bool { return i.Severity != BW }

// Bounded makes every text storable.
func (i Issue) Bounded() Issue {
	return Issue{Code: clip(i.Code, MaxCode), Severity: i.Severity, Text: delivery.Bound(i.Text), Location: clip(i.Location, MaxLocation)}
}

// clip is delivery.Bound with a bound of its own (at most delivery.MaxText).
func clip(s string, limit int) string {
	s = delivery.Bound(s)
	if len(s) > limit {
		s = delivery.Bound(strings.ToValidUTF8(s[:limit], ""))
	}
	return s
}

// Result is what asking one verifier came to.
type Result struct {
	Verifier string // its configured name
	Key      string // of its breaker and lane: verifier$<name>
	Verdict  Verdict
	Issues   []Issue
	Code     string // why it is unavailable: HTTP_503, TIMEOUT, ...
	Text     string // the same for people, bounded

	// RetryAfter is what an unavailable verifier asked for; 0 is nothing.
	RetryAfter time.Duration

	// Server: the verifier or the way to it failed, so its breaker counts this.
	Server bool
	// Ours: nothing is known since we stopped or could not read our own copy. It says
	// nothing of the verifier or the document.
	Ours bool
	// Interrupted: Ours, because we were told to stop.
	Interrupted bool
}

// Combined is what all verifiers say together.
type Combined struct {
	Verdict     Verdict  // passed, rejected, unavailable, or none: Ours
	Issues      []Issue  // of all answers, the most severe first, at most MaxIssues
	Away        []string // the verifiers that gave no answer, sorted
	Interrupted bool     // with VerdictNone: we stopped
}

// Combine joins the answers. An explicit rejection wins over everything, then an
// outage over a pass, since what nobody has looked at has not passed; for the
// same reason no answers at all are an outage. A fault of ours leaves the verdict
// none, unless a verifier rejected.
func Combine(results []Result) Combined {
	var c Combined
	var rejected, ours bool
	for _, r := range results {
		switch {
		case r.Verdict == VerdictRejected:
			rejected = true
			c.Issues = append(c.Issues, r.Issues...)
		case r.Verdict == VerdictPassed && !r.Ours:
			c.Issues = append(c.Issues, r.Issues...)
		case r.Ours:
			ours = true
			c.Interrupted = c.Interrupted || r.Interrupted
		default:
			c.Away = append(c.Away, r.Verifier)
		}
	}
	slices.Sort(c.Away)
	c.Issues = worst(c.Issues)
	switch {
	case rejected:
		c.Verdict, c.Interrupted = VerdictRejected, false
	case ours:
		c.Verdict = VerdictNone
	case len(c.Away) > 0 || len(results) == 0:
		c.Verdict = VerdictUnavailable
	default:
		c.Verdict = VerdictPassed
	}
	return c
}

// worst sorts the findings by severity, bounds each and drops what is too many.
func worst(issues []Issue) []Issue {
	issues = slices.Clone(issues)
	slices.SortStableFunc(issues, func(a, b Issue) int { return cmp.Compare(rank(a.Severity), rank(b.Severity)) })
	issues = issues[:min(len(issues), MaxIssues)]
	for i := range issues {
		issues[i] = issues[i].Bounded()
	}
	return issues
}

func rank(s Severity) int {
	switch s {
	case SV:
		return 0
	case BW:
		return 2
	}
	return 1
}
