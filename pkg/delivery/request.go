package delivery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// Bounds of a request. What exceeds one is refused with the name of the field.
const (
	MaxRequestBytes  = 7 << 20 // below the stream's max_msg_size, which counts headers too
	MaxRequestID     = 128
	MaxRecipients    = 100
	MaxCustomBytes   = 4 << 10
	MaxAttachments   = 20
	MaxSubjectLength = 998 // RFC 5322 2.1.1
)

// Channel is the way a delivery goes out: the third token of its subject.
type Channel string

// Mail is SMTP.
const Mail Channel = "mail"

// Class is the urgency that a client gives a request; within a tenant a lower
// class is served first, bulk getting at least a tenth.
type Class int16

const (
	OTP           Class = 0
	Transactional Class = 1
	Bulk          Class = 2
)

// ParseClass reads the wire word; empty is transactional.
func ParseClass(s string) (Class, error) {
	switch s {
	case "otp":
		return OTP, nil
	case "", "transactional":
		return Transactional, nil
	case "bulk":
		return Bulk, nil
	}
	return 0, fmt.Errorf("class is %.32q, want otp, transactional or bulk", s)
}

func (c Class) String() string { return [...]string{"otp", "transactional", "bulk"}[c] }

// Request is the body of a message on posthouse.send.<channel>.<tenant>: the
// part that every channel shares, and one part per channel. The schema is
// streams/schema/send.mail.json.
type Request struct {
	Version     int             `json:"version"`
	ID          string          `json:"id,omitempty"` // idempotency key, unique per tenant; or in the header Nats-Msg-Id
	Class       string          `json:"class,omitempty"`
	SendAt      *time.Time      `json:"send_at,omitempty"`
	ExpiresAt   *time.Time      `json:"expires_at,omitempty"`
	OrderingKey string          `json:"ordering_key,omitempty"`
	Custom      json.RawMessage `json:"custom,omitempty"` // an object, echoed in every event

	MailRequest
}

// MailRequest is the part of a request that says what to mail to whom.
type MailRequest struct {
	To          []string     `json:"to"`
	Cc          []string     `json:"cc,omitempty"`
	Bcc         []string     `json:"bcc,omitempty"`
	ReplyTo     string       `json:"reply_to,omitempty"`
	Subject     string       `json:"subject"`
	Text        string       `json:"text,omitempty"`
	HTML        string       `json:"html,omitempty"`
	Attachments []Attachment `json:"attachments,omitempty"`
}

// Attachment is one file of a mail; Content is base64 on the wire.
type Attachment struct {
	Name        string `json:"name"`
	ContentType string `json:"content_type,omitempty"`
	Content     []byte `json:"content"`
}

var traceParent = regexp.MustCompile(`^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// ValidTrace tells whether s has the form of a W3C traceparent (Trace Context,
// section 3.2); any other is not worth keeping.
func ValidTrace(s string) bool { return traceParent.MatchString(s) }

var requestID = regexp.MustCompile(`^[\x21-\x7e]{1,128}$`)

// DecodeRequest reads a request strictly: unknown fields, trailing data and
// violated bounds are errors that name the field. headerID is the value of the
// header Nats-Msg-Id; when both ids are given they must agree.
func DecodeRequest(body []byte, headerID string) (*Request, error) {
	if len(body) > MaxRequestBytes {
		return nil, fmt.Errorf("the request has %d bytes, at most %d are taken", len(body), MaxRequestBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	var r Request
	if err := dec.Decode(&r); err != nil {
		return nil, decodeFault(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is more after the JSON object")
	}
	switch {
	case r.ID == "":
		r.ID = headerID
	case headerID != "" && headerID != r.ID:
		return nil, errors.New("id and the header Nats-Msg-Id differ; give one, or the same in both")
	}
	return &r, r.check()
}

// decodeFault keeps the decoder's own words, without the body's content.
func decodeFault(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var moment *time.ParseError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("the body is not JSON (at byte %d)", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("%s is a JSON %s, want %s", kind.Field, kind.Value, kind.Type)
	case errors.As(err, &moment): // its text quotes the value
		return errors.New("send_at or expires_at is no time of RFC 3339, such as 2026-12-24T18:00:00Z")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the body ends before its JSON does")
	}
	return errors.New(Bound(strings.TrimPrefix(err.Error(), "json: ")))
}

func (r *Request) check() error {
	if r.Version != 1 {
		return fmt.Errorf("version is %d, want 1", r.Version)
	}
	if !requestID.MatchString(r.ID) {
		return fmt.Errorf("id (or the header Nats-Msg-Id) must be 1 to %d printable ASCII characters", MaxRequestID)
	}
	if _, err := ParseClass(r.Class); err != nil {
		return err
	}
	if len(r.OrderingKey) > MaxRequestID {
		return fmt.Errorf("ordering_key has %d bytes, at most %d", len(r.OrderingKey), MaxRequestID)
	}
	if strings.ContainsFunc(r.OrderingKey, unicode.IsControl) {
		return errors.New("ordering_key contains a control character")
	}
	if len(r.Custom) > 0 {
		if c := bytes.TrimSpace(r.Custom); c[0] != '{' {
			return errors.New("custom must be a JSON object")
		}
		if len(r.Custom) > MaxCustomBytes {
			return fmt.Errorf("custom has %d bytes, at most %d", len(r.Custom), MaxCustomBytes)
		}
	}
	if r.ExpiresAt != nil && r.SendAt != nil && !r.ExpiresAt.After(*r.SendAt) {
		return errors.New("expires_at is not after send_at")
	}
	return r.MailRequest.check()
}

func (m *MailRequest) check() error {
	if len(m.To) == 0 {
		return errors.New("to is empty: a mail needs at least one recipient")
	}
	if n := len(m.To) + len(m.Cc) + len(m.Bcc); n > MaxRecipients {
		return fmt.Errorf("to, cc and bcc name %d recipients, at most %d", n, MaxRecipients)
	}
	if len(m.Subject) > MaxSubjectLength {
		return fmt.Errorf("subject has %d bytes, at most %d", len(m.Subject), MaxSubjectLength)
	}
	if len(m.Attachments) > MaxAttachments {
		return fmt.Errorf("attachments has %d entries, at most %d", len(m.Attachments), MaxAttachments)
	}
	return nil
}

// Envelope lists the addresses that the mail goes to, in the order of their
// ordinals: to, cc, bcc.
func (m *MailRequest) Envelope() []string {
	return append(append(append(make([]string, 0, len(m.To)+len(m.Cc)+len(m.Bcc)), m.To...), m.Cc...), m.Bcc...)
}
