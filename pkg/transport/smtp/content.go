package smtp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of one prepared mail.
const (
	MaxContent     = 64 << 20 // bytes of its JSON form
	maxHeaders     = 50
	maxAddresses   = 1000 // per address header
	maxAttachments = 100
	maxHeaderValue = 4096 // bytes
	maxLine        = 998  // RFC 5322 section 2.1.1, without CRLF
)

// Address is one mailbox of a header.
type Address struct {
	Address string `json:"address"`
	Name    string `json:"name,omitempty"`
}

// Attachment is one file; its content travels as base64 in the JSON form.
type Attachment struct {
	Name        string `json:"name"`
	ContentType string `json:"content_type,omitempty"` // empty: application/octet-stream
	Content     []byte `json:"content"`
}

// Header is one further header field of the message.
type Header struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Mail is the prepared content of one delivery on this channel: every attempt
// sends the same. The envelope recipients are not here but in the message; whoever
// is in the envelope and in neither To nor Cc is a blind copy.
type Mail struct {
	From         Address      `json:"from,omitzero"`           // zero: the server's MAIL_SERVER_FROM_ADDRESS
	EnvelopeFrom string       `json:"envelope_from,omitempty"` // empty: the From address; "<>": the null sender
	To           []Address    `json:"to,omitempty"`
	Cc           []Address    `json:"cc,omitempty"`
	ReplyTo      []Address    `json:"reply_to,omitempty"` // empty: the server's MAIL_SERVER_REPLY_TO
	Subject      string       `json:"subject,omitempty"`
	Text         string       `json:"text,omitempty"`
	HTML         string       `json:"html,omitempty"`
	Attachments  []Attachment `json:"attachments,omitempty"`
	Headers      []Header     `json:"headers,omitempty"`
	Priority     string       `json:"priority,omitempty"`     // "", normal, high or low
	ReadReceipt  bool         `json:"read_receipt,omitempty"` // asks for one, addressed to From
	MessageID    string       `json:"message_id,omitempty"`   // without angle brackets; empty: made of the delivery's id
	Date         time.Time    `json:"date,omitzero"`          // zero: the delivery's time of acceptance
}

// Encode writes the JSON form.
func (m Mail) Encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode mail: %w", err)
	}
	if len(b) > MaxContent {
		return nil, fmt.Errorf("encode mail: %d bytes are more than %d", len(b), MaxContent)
	}
	return b, nil
}

// Decode reads the JSON form; an unknown field or anything after the object is an
// error. It does not Check.
func Decode(b []byte) (Mail, error) {
	var m Mail
	if len(b) > MaxContent {
		return m, fmt.Errorf("decode mail: %d bytes are more than %d", len(b), MaxContent)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return Mail{}, fmt.Errorf("decode mail: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return Mail{}, errors.New("decode mail: something follows the object")
	}
	return m, nil
}

// Check names every fault of the content, each by its field. maxBodyChars bounds
// the longer of the two bodies, in characters.
func (m Mail) Check(maxBodyChars int) error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }

	if m.From != (Address{}) {
		m.From.check("from", fault)
	}
	for _, l := range []struct {
		field string
		list  []Address
	}{{"to", m.To}, {"cc", m.Cc}, {"reply_to", m.ReplyTo}} {
		if len(l.list) > maxAddresses {
			fault("%s: %d addresses are more than %d", l.field, len(l.list), maxAddresses)
			continue
		}
		for i, a := range l.list {
			a.check(fmt.Sprintf("%s[%d]", l.field, i), fault)
		}
	}
	if m.EnvelopeFrom != "" && m.EnvelopeFrom != "<>" {
		if _, err := parseMailbox(m.EnvelopeFrom); err != nil {
			fault("envelope_from: %w", err)
		}
	}
	if len(m.Subject) > maxHeaderValue || hasControl(m.Subject) {
		fault("subject: is too long or contains control characters")
	}
	if blank(m.Text) && blank(m.HTML) && len(m.Attachments) == 0 {
		fault("text, html: both are blank")
	}
	if n := max(utf8.RuneCountInString(m.Text), utf8.RuneCountInString(m.HTML)); n > maxBodyChars {
		fault("text, html: %d characters are more than %d", n, maxBodyChars)
	}
	if len(m.Attachments) > maxAttachments {
		fault("attachments: %d are more than %d", len(m.Attachments), maxAttachments)
	}
	for i, a := range m.Attachments {
		if a.Name == "" || len(a.Name) > 255 || hasControl(a.Name) {
			fault("attachments[%d].name: is empty, too long or contains control characters", i)
		}
		if _, err := a.mediaType(); err != nil {
			fault("attachments[%d].content_type: %w", i, err)
		}
	}
	if len(m.Headers) > maxHeaders {
		fault("headers: %d are more than %d", len(m.Headers), maxHeaders)
	}
	seen := map[string]bool{}
	for i, h := range m.Headers {
		if err := h.check(); err != nil {
			fault("headers[%d]: %w", i, err)
		}
		if name := strings.ToLower(h.Name); seen[name] {
			fault("headers[%d]: %s is given twice", i, h.Name)
		} else {
			seen[name] = true
		}
	}
	switch m.Priority {
	case "", "normal", "high", "low":
	default:
		fault("priority: %.32q is none of normal, high, low", m.Priority)
	}
	if m.MessageID != "" && !validMessageID(m.MessageID) {
		fault("message_id: %.128q is not of the form left@right", m.MessageID)
	}
	return errors.Join(faults...)
}

func (a Address) check(field string, fault func(string, ...any)) {
	if _, err := parseMailbox(a.Address); err != nil {
		fault("%s: %w", field, err)
	}
	if len(a.Name) > 512 || hasControl(a.Name) {
		fault("%s.name: is too long or contains control characters", field)
	}
}

// mediaType is the checked and canonical content type.
func (a Attachment) mediaType() (string, error) {
	if a.ContentType == "" {
		return "application/octet-stream", nil
	}
	t, params, err := mime.ParseMediaType(a.ContentType)
	if err != nil || !strings.Contains(t, "/") || !isASCII(a.ContentType) || len(a.ContentType) > 255 {
		return "", fmt.Errorf("%.64q is no media type", a.ContentType)
	}
	if strings.HasPrefix(t, "multipart/") {
		return "", fmt.Errorf("%s cannot be one attachment", t)
	}
	delete(params, "name") // the attachment has a name of its own
	return mime.FormatMediaType(t, params), nil
}

// ownHeaders are those that the message builder or the servers on the way write.
var ownHeaders = strings.Fields(`from sender to cc bcc reply-to subject date message-id mime-version return-path received
	dkim-signature arc-seal arc-message-signature arc-authentication-results authentication-results
	resent-from resent-sender resent-to resent-cc resent-bcc resent-date resent-message-id
	importance priority x-priority x-msmail-priority disposition-notification-to return-receipt-to`)

func (h Header) check() error {
	if h.Name == "" || len(h.Name) > 76 {
		return errors.New("the name is empty or too long")
	}
	for _, r := range h.Name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' {
			return fmt.Errorf("%.76q is no header name", h.Name)
		}
	}
	name := strings.ToLower(h.Name)
	if strings.HasPrefix(name, "content-") {
		return fmt.Errorf("%s is not free to set", h.Name)
	}
	for _, own := range ownHeaders {
		if name == own {
			return fmt.Errorf("%s is not free to set", h.Name)
		}
	}
	if len(h.Value) > maxHeaderValue || hasControl(h.Value) || !utf8.ValidString(h.Value) {
		return fmt.Errorf("the value of %s is too long or contains control characters", h.Name)
	}
	return nil
}

// validMessageID accepts the dot-atom form of RFC 5322 section 3.6.4.
func validMessageID(s string) bool {
	left, right, ok := strings.Cut(s, "@")
	if !ok || left == "" || right == "" || len(s) > 250 || !isASCII(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`<>()[],;:\"`, r)
	}) && !strings.Contains(right, "@")
}

func blank(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsSpace(r) })
}
