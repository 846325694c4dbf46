package sender

import (
	"errors"
	"fmt"
	"net/mail"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/transport/smtp"
)

// Marker codes of the seed for what cannot be prepared.
const (
	contentInvalid      = "CONTENT_INVALID"
	configNotResolvable = "CONFIG_NOT_RESOLVABLE"
)

// preparer turns a request into what the transport sends. It is pure: the same
// request and configuration give the same content.
type preparer struct {
	server smtp.Config
	lane   int32
}

// prepared is a request that is ready to be accepted, or the reason why it
// never can be sent.
type prepared struct {
	content    []byte
	recipients []string // envelope addresses, each once, by ordinal
	failure    *delivery.Answer
}

func (p preparer) mail(r *delivery.MailRequest) prepared {
	var out prepared
	m := smtp.Mail{Subject: r.Subject, Text: r.Text, HTML: r.HTML}
	var faults []error
	seen := make(map[string]bool)
	for _, field := range []struct {
		name string
		list []string
		into *[]smtp.Address
	}{{"to", r.To, &m.To}, {"cc", r.Cc, &m.Cc}, {"bcc", r.Bcc, new([]smtp.Address)}} {
		for i, text := range field.list {
			a, err := mail.ParseAddress(text)
			if err != nil {
				faults = append(faults, fmt.Errorf("%s[%d] is not a mailbox", field.name, i))
				out.recipients = append(out.recipients, delivery.Bound(text))
				continue
			}
			*field.into = append(*field.into, smtp.Address{Address: a.Address, Name: a.Name})
			if !seen[a.Address] {
				seen[a.Address] = true
				out.recipients = append(out.recipients, a.Address)
			}
		}
	}
	if r.ReplyTo != "" {
		list, err := mail.ParseAddressList(r.ReplyTo)
		if err != nil {
			faults = append(faults, errors.New("reply_to is not a list of mailboxes"))
		}
		for _, a := range list {
			m.ReplyTo = append(m.ReplyTo, smtp.Address{Address: a.Address, Name: a.Name})
		}
	}
	for _, a := range r.Attachments {
		m.Attachments = append(m.Attachments, smtp.Attachment{Name: a.Name, ContentType: a.ContentType, Content: a.Content})
	}
	if len(faults) == 0 {
		faults = append(faults, m.Check(p.server.MaxBodyChars))
	}
	if err := errors.Join(faults...); err != nil {
		out.failure = marker(contentInvalid, delivery.InvalidInput, err.Error())
		return out
	}
	if p.server.FromAddress == "" && p.server.Username == "" {
		out.failure = marker(configNotResolvable, delivery.Config, "the mail server has neither MAIL_SERVER_FROM_ADDRESS nor MAIL_SERVER_USERNAME")
		return out
	}
	content, err := m.Encode()
	if err != nil {
		out.failure = marker(contentInvalid, delivery.InvalidInput, err.Error())
		return out
	}
	out.content = content
	return out
}

func marker(code string, category delivery.Category, text string) *delivery.Answer {
	return &delivery.Answer{Category: category, Phase: "prepare", Code: code, Text: delivery.Bound(withoutAddresses(text))}
}
