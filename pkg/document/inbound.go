package document

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of an inbound message. What exceeds one is refused with the name of the
// field.
const (
	MaxInboundBytes  = 7 << 20   // below the stream's max_msg_size, which counts headers too
	MaxInlineBytes   = 5 << 20   // of a body inside the message, before base64
	MaxDocumentBytes = 100 << 20 // of a body elsewhere
	MaxID            = 255       // of message and instance ids
	MaxParticipant   = 200       // scheme::value
	MaxDocType       = 600
	MaxProcess       = 300
	MaxURL           = 2048
	MaxObject        = 512
)

// Kind is what a document is.
type Kind string

const (
	Business Kind = "business" // an invoice, an order, ...
	KindMLS  Kind = "mls"      // answers a document that we sent
	KindMLR  Kind = "mlr"      // its predecessor, Message Level Response
)

// Unspecified is the country of a C1 whose message does not say.
const Unspecified = "ZZ"

// Inbound is the body of a message on posthouse.inbound.document.<tenant>: what
// the access point knows of a document that it has received, and the document
// itself or where it lies. Identifiers are scheme::value, as in the SBDH.
type Inbound struct {
	Version int `json:"version"` // 1

	AS4MessageID   string `json:"as4_message_id"`
	SBDHInstanceID string `json:"sbdh_instance_id"`
	SenderID       string `json:"sender_id"`   // C1
	ReceiverID     string `json:"receiver_id"` // C4
	DocTypeID      string `json:"document_type_id"`
	ProcessID      string `json:"process_id"`
	C1Country      string `json:"c1_country,omitempty"`   // two capitals; ZZ when empty
	C2SeatID       string `json:"c2_seat_id,omitempty"`   // common name of the signing certificate
	ContentType    string `json:"content_type,omitempty"` // application/xml when empty

	ReceivedAt time.Time  `json:"received_at"`
	AS4At      *time.Time `json:"as4_timestamp,omitempty"` // received_at when missing

	Kind      Kind    `json:"kind"`
	Reference string  `json:"reference,omitempty"` // kind mls, mlr: SBDH instance id of the document that it answers
	MLSCode   Code    `json:"mls_code,omitempty"`  // kind mls: what it says
	MLSTo     string  `json:"mls_to,omitempty"`    // kind business: participant that the SBDH wants answered
	MLSType   MLSType `json:"mls_type,omitempty"`  // kind business

	Body    []byte         `json:"body,omitempty"` // base64 on the wire
	BodyRef *BodyReference `json:"body_ref,omitempty"`
}

// BodyReference says where the document lies: at a URL, or under a key of the
// payload store. Who fetches it decides which hosts it may come from, and trusts
// only bytes with this size and hash.
type BodyReference struct {
	URL    string `json:"url,omitempty"`    // http or https, without credentials
	Object string `json:"object,omitempty"` // letters, digits, . _ = - and / between them
	Size   int64  `json:"size"`             // bytes, 1 to MaxDocumentBytes
	SHA256 string `json:"sha256"`           // 64 hexadecimal digits, lower case
}

// Sum is the hash as bytes.
func (r *BodyReference) Sum() (sum [32]byte, err error) {
	b, err := hex.DecodeString(r.SHA256)
	if err != nil || len(b) != len(sum) || strings.ToLower(r.SHA256) != r.SHA256 {
		return sum, errors.New("sha256 is not 64 hexadecimal digits in lower case")
	}
	return [32]byte(b), nil
}

// DecodeInbound reads a message strictly: unknown fields, trailing data and
// violated bounds are errors that name the field and never quote the body. What
// may be missing has its default afterwards (c1_country, as4_timestamp).
func DecodeInbound(body []byte) (*Inbound, error) {
	if len(body) > MaxInboundBytes {
		return nil, fmt.Errorf("the message has %d bytes, at most %d are taken", len(body), MaxInboundBytes)
	}
	var in Inbound
	if err := decodeStrict(body, &in); err != nil {
		return nil, err
	}
	if err := in.Validate(); err != nil {
		return nil, err
	}
	if in.C1Country == "" {
		in.C1Country = Unspecified
	}
	if in.AS4At == nil {
		at := in.ReceivedAt
		in.AS4At = &at
	}
	return &in, nil
}

// Validate finds the first fault, by the name of its field.
func (in *Inbound) Validate() error {
	if in.Version != 1 {
		return fmt.Errorf("version is %d, want 1", in.Version)
	}
	for _, f := range []struct {
		name, value string
		limit       int
		check       func(string) bool
		want        string
	}{
		{"as4_message_id", in.AS4MessageID, MaxID, line, "one line of text"},
		{"sbdh_instance_id", in.SBDHInstanceID, MaxID, line, "one line of text"},
		{"sender_id", in.SenderID, MaxParticipant, identifier, "scheme::value"},
		{"receiver_id", in.ReceiverID, MaxParticipant, identifier, "scheme::value"},
		{"document_type_id", in.DocTypeID, MaxDocType, identifier, "scheme::value"},
		{"process_id", in.ProcessID, MaxProcess, identifier, "scheme::value"},
		{"c1_country", or(in.C1Country, Unspecified), 2, country, "two capital letters of ISO 3166-1"},
		{"c2_seat_id", or(in.C2SeatID, "-"), MaxID, line, "one line of text"},
		{"content_type", or(in.ContentType, "application/xml"), MaxID, mediaType.MatchString, "type/subtype"},
		{"mls_to", or(in.MLSTo, "a::b"), MaxParticipant, identifier, "scheme::value"},
		{"reference", or(in.Reference, "-"), MaxID, line, "one line of text"},
	} {
		switch {
		case f.value == "":
			return fmt.Errorf("%s is missing", f.name)
		case len(f.value) > f.limit:
			return fmt.Errorf("%s has %d bytes, at most %d", f.name, len(f.value), f.limit)
		case !f.check(f.value):
			return fmt.Errorf("%s is not %s", f.name, f.want)
		}
	}
	if !plausible(in.ReceivedAt) {
		return errors.New("received_at is missing or no plausible time")
	}
	if in.AS4At != nil && !plausible(*in.AS4At) {
		return errors.New("as4_timestamp is no plausible time")
	}
	if err := in.checkKind(); err != nil {
		return err
	}
	return in.checkBody()
}

func (in *Inbound) checkKind() error {
	switch in.Kind {
	case Business:
		if in.Reference != "" {
			return errors.New("reference is only for kind mls or mlr")
		}
	case KindMLS, KindMLR:
		if in.MLSTo != "" || in.MLSType != "" {
			return errors.New("mls_to and mls_type are only for kind business")
		}
	default:
		return fmt.Errorf("kind is %.32q, want business, mls or mlr", string(in.Kind))
	}
	switch in.MLSType {
	case "", AlwaysSend, FailureOnly:
	default:
		return fmt.Errorf("mls_type is %.32q, want ALWAYS_SEND or FAILURE_ONLY", string(in.MLSType))
	}
	if in.MLSCode != "" {
		if in.Kind != KindMLS {
			return errors.New("mls_code is only for kind mls")
		}
		if _, err := ParseCode(string(in.MLSCode)); err != nil {
			return fmt.Errorf("mls_%w", err)
		}
	}
	return nil
}

func (in *Inbound) checkBody() error {
	r := in.BodyRef
	switch {
	case (len(in.Body) > 0) == (r != nil):
		return errors.New("there must be either body or body_ref, and it must not be empty")
	case len(in.Body) > MaxInlineBytes:
		return fmt.Errorf("body has %d bytes, at most %d; larger ones go by body_ref", len(in.Body), MaxInlineBytes)
	case r == nil:
		return nil
	case (r.URL == "") == (r.Object == ""):
		return errors.New("body_ref needs either url or object")
	case r.Size < 1 || r.Size > MaxDocumentBytes:
		return fmt.Errorf("body_ref.size is %d, want 1 to %d", r.Size, MaxDocumentBytes)
	case r.Object != "" && (len(r.Object) > MaxObject || !objectKey.MatchString(r.Object)):
		return fmt.Errorf("body_ref.object is no key: at most %d of A-Z a-z 0-9 . _ = - in parts between slashes, none of which starts with a dot", MaxObject)
	}
	if _, err := r.Sum(); err != nil {
		return fmt.Errorf("body_ref.%w", err)
	}
	if r.URL != "" {
		// The text of a parse error could quote a password.
		u, err := url.Parse(r.URL)
		if err != nil || len(r.URL) > MaxURL || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
			return fmt.Errorf("body_ref.url is not an http or https URL of at most %d bytes without user, password and fragment", MaxURL)
		}
	}
	return nil
}

// Facts are the document before its first decision (Facts.Receive); the caller
// adds ID and Tenant. The MLS type is decided here, once.
func (in *Inbound) Facts(p *Policy) Facts {
	f := Facts{Kind: in.Kind, SBDHInstanceID: in.SBDHInstanceID, Reference: in.Reference, MLSTo: in.MLSTo, C2SeatID: in.C2SeatID, ReceivedAt: in.ReceivedAt, MLSType: p.MLSTypeFor(in.MLSType)}
	if in.AS4At != nil {
		f.AS4At = *in.AS4At
	}
	return f
}

var (
	mediaType = regexp.MustCompile(`^[A-Za-z0-9!#$&^_.+-]{1,100}/[A-Za-z0-9!#$&^_.+-]{1,100}$`) // RFC 6838 4.2, without parameters
	objectKey = regexp.MustCompile(`^[A-Za-z0-9_=-][A-Za-z0-9._=-]*(/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*$`)
)

// line is text that can be stored and shown: valid, without control characters,
// not blank at its ends.
func line(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) && strings.TrimSpace(s) == s && !strings.ContainsRune(s, utf8.RuneError)
}

// identifier is printable ASCII with a scheme and a value.
func identifier(s string) bool {
	scheme, value, ok := strings.Cut(s, "::")
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return ok && scheme != "" && value != ""
}

// plausible keeps out what a broken clock or a hostile sender would make of a
// deadline, and what JSON and PostgreSQL cannot both hold.
func plausible(t time.Time) bool { return t.Year() >= 2000 && t.Year() < 2200 }

func or(s, instead string) string {
	if s == "" {
		return instead
	}
	return s
}
