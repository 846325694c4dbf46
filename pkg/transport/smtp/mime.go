package smtp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/mail"
	"net/textproto"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// errNoSender says that neither the mail nor the server names a From address.
var errNoSender = errors.New("neither the mail nor MAIL_SERVER_FROM_ADDRESS names a sender")

// complete fills what the mail leaves to the server's account and to the
// delivery, so that each attempt has the same identity: the Message-ID and the
// date come from the delivery's id, never from the attempt.
func (m Mail) complete(c Config, id delivery.ID) (Mail, error) {
	if m.From.Address == "" {
		if c.FromAddress == "" {
			return m, errNoSender
		}
		m.From = Address{Address: c.FromAddress, Name: c.FromName}
	}
	if len(m.ReplyTo) == 0 && c.ReplyTo != "" {
		m.ReplyTo = []Address{{Address: c.ReplyTo}}
	}
	if m.EnvelopeFrom == "" {
		m.EnvelopeFrom = m.From.Address
	}
	if m.MessageID == "" {
		box, err := parseMailbox(m.From.Address)
		if err != nil {
			return m, err
		}
		m.MessageID = id.String() + box.addr[strings.LastIndexByte(box.addr, '@'):]
	}
	if m.Date.IsZero() {
		m.Date = id.Time()
	}
	return m, nil
}

// render writes the message in its wire form: ASCII only (bodies are
// quoted-printable, files base64), so no server needs 8BITMIME; lines end in
// CRLF; the final dot is included. maxBytes bounds the message without the dot.
func (m Mail) render(maxBytes int64) (data []byte, size int, err error) {
	msg, err := m.build()
	if err != nil {
		return nil, 0, err
	}
	var plain bytes.Buffer
	if _, err := msg.WriteTo(&plain); err != nil {
		return nil, 0, fmt.Errorf("build the message: %w", err)
	}
	size = plain.Len()
	if int64(size) > maxBytes {
		return nil, 0, fmt.Errorf("the message has %d bytes, more than MAIL_MAX_MESSAGE_BYTES %d", size, maxBytes)
	}
	if err := checkLines(plain.Bytes()); err != nil {
		return nil, 0, err
	}
	var wire bytes.Buffer
	wire.Grow(size + size/64 + 64)
	buf := bufio.NewWriter(&wire)
	dot := textproto.NewWriter(buf).DotWriter()
	// A bytes.Buffer does not fail.
	_, _ = dot.Write(plain.Bytes())
	_ = dot.Close()
	return wire.Bytes(), size, nil
}

// build hands the checked content to the MIME library.
func (m Mail) build() (*gomail.Msg, error) {
	msg := gomail.NewMsg(gomail.WithNoDefaultUserAgent())
	from, err := m.From.header()
	if err != nil {
		return nil, err
	}
	msg.SetAddrHeaderFromMailAddress(gomail.HeaderFrom, from)
	for _, l := range []struct {
		name gomail.AddrHeader
		list []Address
	}{{gomail.HeaderTo, m.To}, {gomail.HeaderCc, m.Cc}, {gomail.HeaderReplyTo, m.ReplyTo}} {
		var out []*mail.Address
		for _, a := range l.list {
			h, err := a.header()
			if err != nil {
				return nil, err
			}
			out = append(out, h)
		}
		if len(out) > 0 {
			msg.SetAddrHeaderFromMailAddress(l.name, out...)
		}
	}
	msg.Subject(m.Subject)
	msg.SetMessageIDWithValue(m.MessageID)
	msg.SetDateWithValue(m.Date.Truncate(time.Second))
	switch m.Priority {
	case "high":
		msg.SetImportance(gomail.ImportanceHigh)
	case "low":
		msg.SetImportance(gomail.ImportanceLow)
	}
	if m.ReadReceipt {
		msg.SetGenHeader("Disposition-Notification-To", "<"+from.Address+">")
		msg.SetGenHeader("Return-Receipt-To", "<"+from.Address+">")
	}
	for _, h := range m.Headers {
		msg.SetGenHeader(gomail.Header(h.Name), h.Value)
	}
	switch {
	case !blank(m.Text) && !blank(m.HTML):
		msg.SetBodyString(gomail.TypeTextPlain, m.Text)
		msg.AddAlternativeString(gomail.TypeTextHTML, m.HTML)
	case !blank(m.HTML):
		msg.SetBodyString(gomail.TypeTextHTML, m.HTML)
	default:
		msg.SetBodyString(gomail.TypeTextPlain, m.Text)
	}
	for _, a := range m.Attachments {
		t, err := a.mediaType()
		if err != nil {
			return nil, err
		}
		msg.AttachReadSeeker(a.Name, bytes.NewReader(a.Content), gomail.WithFileContentType(gomail.ContentType(t)))
	}
	return msg, nil
}

// header is the address for a header field, its domain in ASCII.
func (a Address) header() (*mail.Address, error) {
	box, err := parseMailbox(a.Address)
	if err != nil {
		return nil, err
	}
	parsed, err := mail.ParseAddress(box.addr) // unquotes the local part; the library quotes it again
	if err != nil {
		return nil, fmt.Errorf("%.128q is no mail address", a.Address)
	}
	return &mail.Address{Name: a.Name, Address: parsed.Address}, nil
}

// needsUTF8 tells whether an address that the message shows has a local part
// beyond ASCII.
func (m Mail) needsUTF8() bool {
	for _, l := range [][]Address{{m.From}, m.To, m.Cc, m.ReplyTo} {
		for _, a := range l {
			if box, err := parseMailbox(a.Address); err == nil && box.utf8 {
				return true
			}
		}
	}
	return false
}

// checkLines is the last guard against smuggling: no bare CR or LF, no NUL, no
// line beyond what RFC 5322 allows.
func checkLines(b []byte) error {
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte("\r\n"))
		if len(line) > maxLine {
			return fmt.Errorf("a line of the message has %d bytes, more than %d: a word of a header is too long", len(line), maxLine)
		}
		if bytes.ContainsAny(line, "\r\n\x00") {
			return errors.New("the message has a bare CR, a bare LF or a NUL")
		}
		b = rest
	}
	return nil
}
