package delivery

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Verdict says what one attempt did to the world. The zero value is Unknown, so
// a forgotten case leads to the unknown-outcome policy, never to a silent loss
// or a second send.
type Verdict string

const (
	Unknown     Verdict = ""            // the other side may or may not have it
	Accepted    Verdict = "accepted"    // the other side took it
	Refused     Verdict = "refused"     // known not to have been taken
	Interrupted Verdict = "interrupted" // we stopped before anything irreversible: costs no attempt
)

// String names the verdict; the zero value reads "unknown".
func (v Verdict) String() string {
	if v == Unknown {
		return "unknown"
	}
	return string(v)
}

// Category says what kind of failure a refusal was; names of the seed
// "Delivery & Retries", plus POLICY.
type Category string

const (
	NoCategory   Category = ""
	Transient    Category = "TRANSIENT"     // retry
	Quota        Category = "QUOTA"         // retry, not before the floor
	Unclassified Category = "UNKNOWN"       // not recognised: retry
	Permanent    Category = "PERMANENT"     // final
	InvalidInput Category = "INVALID_INPUT" // final
	Auth         Category = "AUTH"          // final (or parks the lane)
	Config       Category = "CONFIG"        // final
	Policy       Category = "POLICY"        // final: the other side does not want this content or sender
)

// Retryable tells whether another attempt may help.
func (c Category) Retryable() bool {
	switch c {
	case Permanent, InvalidInput, Auth, Config, Policy:
		return false
	}
	return true
}

// Phase is how far an attempt got: a word of the protocol, such as "dial",
// "rcpt" or "final" for SMTP.
type Phase string

// MaxText bounds every text of the other side that is kept, in bytes.
const MaxText = 500

// Answer is what the other side (or the path to it) said: for the delivery as a
// whole or for one recipient.
type Answer struct {
	Category Category `json:"category,omitempty"`
	Phase    Phase    `json:"phase,omitempty"`
	Code     string   `json:"code,omitempty"`     // "550", "HTTP_503", "ZOMBIE_RECOVERED"
	Enhanced string   `json:"enhanced,omitempty"` // RFC 3463, "5.1.1"
	Text     string   `json:"text,omitempty"`     // bounded by MaxText
}

// Bounded gives the answer with every text made storable by Bound.
func (a Answer) Bounded() Answer {
	return Answer{Category: a.Category, Phase: Phase(Bound(string(a.Phase))), Code: Bound(a.Code), Enhanced: Bound(a.Enhanced), Text: Bound(a.Text)}
}

// RecipientOutcome is the answer for one envelope recipient.
type RecipientOutcome struct {
	Ordinal int // position in the delivery's list of recipients, from 0
	Verdict Verdict
	Answer  Answer
}

// Outcome is all that one attempt reports. When Recipients is empty the verdict
// holds for every recipient that was waiting.
type Outcome struct {
	Verdict    Verdict
	Answer     Answer
	Server     bool          // the failure is of the server or the way to it, not of this message
	RetryAfter time.Duration // what the other side asked for; 0 = nothing
	Remote     string        // the peer that answered, host:port
	RemoteID   string        // the other side's own name for it, when it gave one
	Recipients []RecipientOutcome
}

// Bound makes a foreign text storable: one line, valid UTF-8, no control
// character, at most MaxText bytes.
func Bound(s string) string {
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || r == utf8.RuneError {
			return ' '
		}
		return r
	}, s))
	if len(s) <= MaxText {
		return s
	}
	s = s[:MaxText]
	for !utf8.ValidString(s) {
		s = s[:len(s)-1]
	}
	return strings.TrimSpace(s)
}
