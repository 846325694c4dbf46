package smtp

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// session is one connection that has been greeted and, where configured,
// encrypted and authenticated. One send at a time uses it.
type session struct {
	*wire
	r      *bufio.Reader
	cfg    *account
	ext    map[string]string // EHLO keywords in upper case, with their parameters
	remote string
	sent   int       // transactions begun
	idle   time.Time // since when it lies in the pool
	broken bool      // not to be used again
	open   bool      // a transaction was begun and not ended: RSET first
}

// account is a Config with all that New derives from it.
type account struct {
	Config
	tls   *tls.Config
	name  string            // for EHLO
	scrub *strings.Replacer // takes our secrets out of the server's texts
}

// stop is why a dialogue ended before the final dot: an answer of the server, or
// what befell the path (err).
type stop struct {
	answer delivery.Answer
	err    error
}

// lost tells whether the server was simply gone: what a kept connection may
// suffer without anything being wrong.
func (s *stop) lost() bool {
	if s.answer.Code == "421" {
		return true
	}
	return s.err != nil && (errors.Is(s.err, io.EOF) || errors.Is(s.err, io.ErrUnexpectedEOF) || errors.Is(s.err, net.ErrClosed) ||
		errors.Is(s.err, syscall.ECONNRESET) || errors.Is(s.err, syscall.EPIPE) || errors.Is(s.err, syscall.ECONNABORTED))
}

// broke makes a stop of an I/O error.
func broke(phase delivery.Phase, err error) *stop {
	code := CodeLost
	switch {
	case errors.Is(err, errProtocol):
		code = CodeProtocol
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		code = CodeTimeout
	case phase == PhaseDial:
		code = CodeDial
	case phase == PhaseTLS:
		code = CodeTLS
	}
	return local(phase, code, err)
}

// local makes a stop of a fault that no reply carries.
func local(phase delivery.Phase, code string, err error) *stop {
	text := err.Error()
	return &stop{err: err, answer: delivery.Answer{Category: Classify(phase, code, "", text), Phase: phase, Code: code, Text: delivery.Bound(text)}}
}

// open connects, encrypts and authenticates. ctx bounds the dial and, by watch,
// each step.
func (a *account) open(ctx context.Context, limit time.Time) (*session, *stop) {
	dialer := net.Dialer{Timeout: a.ConnectTimeout, Deadline: limit}
	conn, err := dialer.DialContext(ctx, "tcp", a.address())
	if err != nil {
		return nil, broke(PhaseDial, err)
	}
	s := &session{wire: newWire(conn), cfg: a, remote: conn.RemoteAddr().String()}
	s.within(limit)
	release := s.watch(ctx)
	if st := s.greet(ctx); st != nil {
		release()
		s.drop()
		return nil, st
	}
	if !release() {
		s.drop()
		return nil, broke(PhaseAuth, ctx.Err())
	}
	return s, nil
}

func (s *session) greet(ctx context.Context) *stop {
	s.r = newReader(s)
	if s.cfg.TLS == TLSImplicit {
		if st := s.encrypt(ctx); st != nil {
			return st
		}
	}
	s.arm(s.cfg.ReadTimeout)
	if rep, st := s.read(PhaseGreeting); st != nil {
		return st
	} else if rep.code != 220 {
		return s.refused(PhaseGreeting, rep)
	}
	if st := s.hello(); st != nil {
		return st
	}
	if st := s.startTLS(ctx); st != nil {
		return st
	}
	if s.cfg.Username == "" {
		return nil
	}
	return s.authenticate()
}

// hello learns what the server can do; a server that knows no EHLO can do nothing.
func (s *session) hello() *stop {
	s.ext = map[string]string{}
	rep, st := s.command(PhaseEhlo, "EHLO "+s.cfg.name)
	if st != nil {
		return st
	}
	if rep.code == 500 || rep.code == 502 {
		if rep, st = s.command(PhaseEhlo, "HELO "+s.cfg.name); st != nil {
			return st
		}
		if !rep.positive() {
			return s.refused(PhaseEhlo, rep)
		}
		return nil
	}
	if !rep.positive() {
		return s.refused(PhaseEhlo, rep)
	}
	for i, line := range rep.lines {
		if i == 0 {
			continue // the server's name
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		s.ext[strings.ToUpper(word)] = strings.ToUpper(strings.TrimSpace(rest))
	}
	return nil
}

// startTLS follows the policy. A server that does not offer what the policy wants
// is a fault of the path, since somebody on it may have taken the offer out.
func (s *session) startTLS(ctx context.Context) *stop {
	switch s.cfg.TLS {
	case TLSNone, TLSImplicit:
		return nil
	}
	if !s.offers("STARTTLS") {
		if s.cfg.TLS == TLSOpportunistic {
			return nil
		}
		return local(PhaseTLS, CodeNoTLS, errors.New("the server does not offer STARTTLS, which MAIL_SERVER_TLS=required wants"))
	}
	rep, st := s.command(PhaseTLS, "STARTTLS")
	if st != nil {
		return st
	}
	if rep.code != 220 {
		return s.refused(PhaseTLS, rep)
	}
	// Anything behind the reply was said in the clear and must not count as said
	// under TLS (response injection).
	if s.r.Buffered() > 0 {
		return local(PhaseTLS, CodeProtocol, fmt.Errorf("%w: plain text behind the reply to STARTTLS", errProtocol))
	}
	if st := s.encrypt(ctx); st != nil {
		return st
	}
	return s.hello()
}

func (s *session) encrypt(ctx context.Context) *stop {
	c := tls.Client(s.raw, s.cfg.tls)
	s.arm(s.cfg.ReadTimeout)
	if err := c.HandshakeContext(ctx); err != nil {
		return broke(PhaseTLS, err)
	}
	s.Conn = c
	s.r = newReader(s)
	return nil
}

// secret tells whether a password may be sent: under TLS, or to this machine.
func (s *session) secret() bool {
	if _, ok := s.Conn.(*tls.Conn); ok {
		return true
	}
	a, ok := s.raw.RemoteAddr().(*net.TCPAddr)
	return ok && a.IP.IsLoopback()
}

func (s *session) offers(keyword string) bool {
	_, ok := s.ext[keyword]
	return ok
}

// sizeLimit is what the server takes at most (RFC 1870), 0 when it does not say.
func (s *session) sizeLimit() int {
	n, err := strconv.Atoi(s.ext["SIZE"])
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// command sends one line and reads the reply to it.
func (s *session) command(phase delivery.Phase, line string) (reply, *stop) {
	s.arm(s.cfg.ReadTimeout)
	if _, err := io.WriteString(s, line+"\r\n"); err != nil {
		s.broken = true
		return reply{}, broke(phase, err)
	}
	return s.read(phase)
}

// read reads one reply under the deadline that the caller has armed: one for the
// whole reply, so a server that trickles bytes wins nothing.
func (s *session) read(phase delivery.Phase) (reply, *stop) {
	rep, err := readReply(s.r)
	if err != nil {
		s.broken = true
		return reply{}, broke(phase, err)
	}
	if rep.code == 421 {
		s.broken = true
	}
	return rep, nil
}

// refused makes a stop of a reply that is not the one needed. A reply that makes
// no sense at this place ends the connection.
func (s *session) refused(phase delivery.Phase, rep reply) *stop {
	if !rep.negative() {
		s.broken = true
		return local(phase, CodeProtocol, fmt.Errorf("%w: reply %d at %s", errProtocol, rep.code, phase))
	}
	return &stop{answer: rep.answer(phase, s.cfg.scrub)}
}

// farewell says QUIT without waiting for an answer, and closes.
func (s *session) farewell() {
	s.within(noLimit)
	s.arm(farewellTime)
	// What becomes of it does not matter any more.
	_, _ = io.WriteString(s, "QUIT\r\n")
	s.drop()
}

// drop closes the connection below TLS, so that it cannot block.
func (s *session) drop() { _ = s.raw.Close() }

// farewellTime bounds the QUIT of a connection that is no longer wanted.
const farewellTime = time.Second
