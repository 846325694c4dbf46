package smtp

import (
	"errors"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/transport"
)

// parcel is a message ready for a dialogue.
type parcel struct {
	from       string     // reverse-path without angle brackets, "" for the null sender
	utf8       bool       // the headers or the sender need SMTPUTF8
	recipients []envelope // at least one
	data       []byte     // dot-stuffed, with the final dot
	size       int        // bytes of the message itself, for SIZE (RFC 1870)
}

// envelope is one recipient and, once it is settled, why it gets nothing.
type envelope struct {
	ordinal int
	box     mailbox
	refused *delivery.Answer
	ours    bool // refused by our own check, not by a server
}

// pack decodes, checks and renders the message. A recipient whose address cannot
// be used is refused alone.
func (t *Transport) pack(m transport.Message) (parcel, *stop) {
	cfg := t.account.Config
	if len(m.Recipients) == 0 {
		return parcel{}, local(PhaseContent, CodeContent, errors.New("no recipient waits"))
	}
	content, err := Decode(m.Content)
	if err == nil {
		err = content.Check(cfg.MaxBodyChars)
	}
	if err != nil {
		return parcel{}, local(PhaseContent, CodeContent, err)
	}
	content, err = content.complete(cfg, m.ID)
	if errors.Is(err, errNoSender) {
		return parcel{}, local(PhaseContent, CodeConfig, err)
	}
	if err != nil {
		return parcel{}, local(PhaseContent, CodeContent, err)
	}
	p := parcel{utf8: content.needsUTF8()}
	if content.EnvelopeFrom != "<>" {
		box, err := parseMailbox(content.EnvelopeFrom)
		if err != nil {
			return parcel{}, local(PhaseContent, CodeContent, err)
		}
		p.from, p.utf8 = box.addr, p.utf8 || box.utf8
	}
	for _, r := range m.Recipients {
		e := envelope{ordinal: r.Ordinal}
		if e.box, err = parseMailbox(r.Address); err != nil {
			e.refused, e.ours = &local(PhaseContent, CodeAddress, err).answer, true
		}
		p.recipients = append(p.recipients, e)
	}
	if p.data, p.size, err = content.render(cfg.MaxMessageBytes); err != nil {
		return parcel{}, local(PhaseContent, CodeContent, err)
	}
	return p, nil
}

// settled tells whether every recipient has been refused.
func (p parcel) settled() bool {
	for _, e := range p.recipients {
		if e.refused == nil {
			return false
		}
	}
	return true
}

// forget drops what a server that is gone said of the recipients.
func (p parcel) forget() {
	for i := range p.recipients {
		if e := &p.recipients[i]; !e.ours {
			e.refused = nil
		}
	}
}

// outcome joins the verdict on the message with the refusals of recipients. When
// all were refused, the verdict on the message never came.
func (p parcel) outcome(v delivery.Verdict, a delivery.Answer) delivery.Outcome {
	out := delivery.Outcome{Verdict: v, Answer: a, Server: v != delivery.Accepted && OnServer(a), RetryAfter: retryAfter(a)}
	var worth *delivery.Answer // the first refusal that a retry may cure, else the first
	refused := 0
	for _, e := range p.recipients {
		if e.refused == nil {
			continue
		}
		refused++
		if worth == nil || !worth.Category.Retryable() && e.refused.Category.Retryable() {
			worth = e.refused
		}
	}
	if refused == 0 {
		return out
	}
	if refused == len(p.recipients) {
		out.Verdict, out.Answer, out.Server, out.RetryAfter = delivery.Refused, *worth, OnServer(*worth), 0
	}
	for _, e := range p.recipients {
		r := delivery.RecipientOutcome{Ordinal: e.ordinal, Verdict: v, Answer: a}
		if e.refused != nil {
			r.Verdict, r.Answer = delivery.Refused, *e.refused
			out.RetryAfter = max(out.RetryAfter, retryAfter(*e.refused))
		}
		out.Recipients = append(out.Recipients, r)
	}
	return out
}
