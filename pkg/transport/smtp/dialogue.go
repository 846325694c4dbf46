package smtp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

const (
	// window bounds how many commands are on the way unanswered, so that neither
	// side can block on a full buffer while the other does (RFC 2920 section 3.1).
	window = 64
	// tail is how much of the message goes out in the last write, together with the
	// final dot: most mails are one write.
	tail = 32 << 10
)

// dialogue is one mail transaction on a session.
type dialogue struct {
	*session
	p       parcel
	proceed func() error
	asked   bool // proceed has been asked: this attempt must not begin anew
}

// run carries the transaction out. stop is nil when a verdict on the message was
// reached; otherwise everything ended before the final dot.
func (d *dialogue) run(ctx context.Context) (delivery.Outcome, *stop) {
	d.sent++
	st := d.unasked(PhaseMail)
	if st == nil {
		st = d.envelope()
	}
	if st == nil {
		st = d.body(ctx)
	}
	if st != nil {
		if d.settled() { // every recipient had its answer; that says more than the stop
			return d.outcome(delivery.Refused, st.answer), nil
		}
		return delivery.Outcome{}, st
	}
	return d.final(), nil
}

// errNobody ends a dialogue in which no recipient is left.
var errNobody = errors.New("no recipient was accepted")

// command is one step of the envelope.
type command struct {
	phase delivery.Phase
	line  string
	to    *envelope // of a RCPT
}

// envelope says MAIL, RCPT and DATA, together when the server allows it
// (PIPELINING), and returns nil when the server waits for the message.
//
// With pipelining DATA goes out before the answers are known. That is harmless:
// a server without recipients refuses it, and one that does not is left.
func (d *dialogue) envelope() *stop {
	if st := d.fits(); st != nil {
		return st
	}
	commands := d.commands()
	if d.settled() {
		return local(PhaseRcpt, CodeAddress, errNobody)
	}
	at := 1
	if d.offers("PIPELINING") {
		at = window
	}
	d.open = true
	for len(commands) > 0 {
		group := commands[:min(at, len(commands))]
		commands = commands[len(group):]
		if group[0].phase == PhaseData && d.settled() {
			break
		}
		if st := d.exchange(group); st != nil {
			return st
		}
	}
	if d.settled() {
		return local(PhaseRcpt, CodeAddress, errNobody)
	}
	return nil
}

// commands lists the steps of the envelope, without the recipients that this
// server cannot be given.
func (d *dialogue) commands() []command {
	list := []command{{phase: PhaseMail, line: d.mailLine()}}
	for i := range d.p.recipients {
		to := &d.p.recipients[i]
		if to.refused == nil && to.box.utf8 && !d.offers("SMTPUTF8") {
			to.refused = noUTF8("the local part of the address")
		}
		if to.refused == nil {
			list = append(list, command{phase: PhaseRcpt, line: "RCPT TO:<" + to.box.addr + ">", to: to})
		}
	}
	return append(list, command{phase: PhaseData, line: "DATA"})
}

// exchange writes a group of commands at once and reads all their replies. The
// first refusal of the whole message is returned; those behind it only follow
// from it.
func (d *dialogue) exchange(group []command) *stop {
	var lines strings.Builder
	for _, c := range group {
		lines.WriteString(c.line + "\r\n")
	}
	d.arm(d.cfg.ReadTimeout)
	if _, err := io.WriteString(d, lines.String()); err != nil {
		d.broken = true
		return broke(group[0].phase, err)
	}
	var failed *stop
	for _, c := range group {
		d.arm(d.cfg.ReadTimeout)
		rep, st := d.read(c.phase)
		if st == nil && rep.code == 421 { // the server leaves, whatever command this answers
			st = d.refused(c.phase, rep)
		}
		if st != nil {
			if failed != nil {
				return failed
			}
			return st
		}
		if failed != nil || c.phase == PhaseData && d.settled() {
			d.broken = d.broken || rep.code == 354 // it waits for a message that it shall not get
			continue
		}
		if failed = d.judge(c, rep); failed != nil && d.broken {
			return failed
		}
	}
	return failed
}

// judge records a refused recipient and stops on any other reply that does not
// lead on.
func (d *dialogue) judge(c command, rep reply) *stop {
	switch {
	case c.phase == PhaseData && rep.code == 354, c.phase != PhaseData && rep.positive():
		return nil
	case c.to != nil && rep.negative():
		a := rep.answer(c.phase, d.cfg.scrub)
		c.to.refused = &a
		return nil
	}
	return d.refused(c.phase, rep)
}

// fits refuses what this server is known not to take.
func (d *dialogue) fits() *stop {
	if most := d.sizeLimit(); most > 0 && d.p.size > most {
		return &stop{answer: delivery.Answer{
			Category: delivery.InvalidInput, Phase: PhaseMail, Code: "552", Enhanced: "5.3.4",
			Text: fmt.Sprintf("the message has %d bytes, the server takes %d", d.p.size, most),
		}}
	}
	if d.p.utf8 && !d.offers("SMTPUTF8") {
		return &stop{answer: *noUTF8("an address of the sender or of a header")}
	}
	return nil
}

func noUTF8(what string) *delivery.Answer {
	return &delivery.Answer{
		Category: delivery.InvalidInput, Phase: PhaseRcpt, Code: CodeAddress, Enhanced: "5.6.7",
		Text: what + " is not ASCII and the server does not offer SMTPUTF8",
	}
}

func (d *dialogue) mailLine() string {
	line := "MAIL FROM:<" + d.p.from + ">"
	if d.offers("SIZE") {
		line += fmt.Sprintf(" SIZE=%d", d.p.size)
	}
	if d.offers("SMTPUTF8") && d.wantsUTF8() {
		line += " SMTPUTF8"
	}
	return line
}

func (d *dialogue) wantsUTF8() bool {
	for _, to := range d.p.recipients {
		if to.refused == nil && to.box.utf8 {
			return true
		}
	}
	return d.p.utf8
}

// body sends the message. All but its tail goes first; then Proceed is asked, and
// one write brings the tail with the final dot. If that write could not hand over
// all its bytes, the dot did not leave (under TLS its record is incomplete, so
// the server cannot read it), and the message is known not to have been sent.
func (d *dialogue) body(ctx context.Context) *stop {
	rest := d.p.data
	for len(rest) > tail {
		n := min(len(rest)-tail, tail)
		d.arm(d.cfg.ReadTimeout)
		if _, err := d.Write(rest[:n]); err != nil {
			return d.bodyLost(err)
		}
		rest = rest[n:]
	}
	if err := ctx.Err(); err != nil {
		d.broken = true
		return broke(PhaseBody, err)
	}
	if st := d.unasked(PhaseBody); st != nil {
		return st
	}
	d.asked = true
	if err := d.proceed(); err != nil {
		d.broken = true // closing is the only way to take DATA back
		return &stop{err: errStopped, answer: delivery.Answer{Phase: PhaseBody, Code: CodeInterrupted, Text: delivery.Bound(err.Error())}}
	}
	d.arm(d.cfg.ReadTimeout)
	if n, err := d.Write(rest); err != nil && n < len(rest) {
		return d.bodyLost(err)
	}
	return nil
}

// unasked looks for a reply that nobody asked for: a server that leaves or refuses
// early, or one whose replies are out of step. The latter must not be taken for
// the reply to the next command, least of all to the final dot.
func (d *dialogue) unasked(phase delivery.Phase) *stop {
	if d.r.Buffered() == 0 {
		return nil
	}
	d.broken = true
	d.arm(d.cfg.ReadTimeout)
	rep, st := d.read(phase)
	if st != nil {
		return st
	}
	if rep.negative() {
		return d.refused(phase, rep)
	}
	return local(phase, CodeProtocol, fmt.Errorf("%w: a reply %d to nothing", errProtocol, rep.code))
}

// errStopped marks that we stopped ourselves.
var errStopped = errors.New("stopped before the final dot")

// bodyLost looks whether the server said why it hung up.
func (d *dialogue) bodyLost(err error) *stop {
	st := broke(PhaseBody, err)
	d.broken = true
	if st.lost() {
		d.arm(d.cfg.ConnectTimeout)
		if rep, unread := d.read(PhaseBody); unread == nil && rep.negative() {
			return &stop{answer: rep.answer(PhaseBody, d.cfg.scrub)}
		}
	}
	return st
}

// final reads the reply to the final dot. Only a reply decides.
func (d *dialogue) final() delivery.Outcome {
	d.within(noLimit)
	d.arm(d.cfg.FinalTimeout)
	rep, st := d.read(PhaseFinal)
	if st != nil {
		st.answer.Category = delivery.NoCategory
		return d.outcome(delivery.Unknown, st.answer)
	}
	a := rep.answer(PhaseFinal, d.cfg.scrub)
	switch {
	case rep.positive():
		d.open = false
		out := d.outcome(delivery.Accepted, a)
		out.RemoteID = rep.queueID()
		return out
	case rep.negative():
		d.open = false
		return d.outcome(delivery.Refused, a)
	}
	d.broken = true
	a.Category = delivery.NoCategory
	return d.outcome(delivery.Unknown, a)
}

// settled tells whether every recipient has been refused.
func (d *dialogue) settled() bool { return d.p.settled() }

func (d *dialogue) outcome(v delivery.Verdict, a delivery.Answer) delivery.Outcome {
	return d.p.outcome(v, a)
}

// clear ends a transaction that the server still holds open, so that the
// connection can be used again. What the server thinks of it changes nothing.
func (d *dialogue) clear() {
	if d.broken || !d.open {
		return
	}
	d.within(noLimit)
	d.arm(d.cfg.ConnectTimeout)
	if _, err := io.WriteString(d, "RSET\r\n"); err != nil {
		d.broken = true
		return
	}
	if rep, st := d.read(PhaseMail); st != nil || !rep.positive() {
		d.broken = true
	}
	d.open = false
}
