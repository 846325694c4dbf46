package smtpsink

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/textproto"
	"strings"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// session is one connection; the server calls it from one goroutine.
type session struct {
	sink     *Sink
	conn     *smtp.Conn
	number   int64
	authed   bool
	from     string
	to       []string
	deciding script // of the first recipient that has a say after the final dot
}

func (s *Sink) session(c *smtp.Conn) (smtp.Session, error) {
	if err := s.knock(c.Conn().RemoteAddr().String()); err != nil {
		return nil, err
	}
	return &session{sink: s, conn: c, number: s.sessions.Add(1), authed: s.opts.Username == ""}, nil
}

func (s *session) Reset()        { s.from, s.to, s.deciding = "", nil, script{} }
func (s *session) Logout() error { return nil }

func (s *session) AuthMechanisms() []string {
	if s.sink.opts.Username == "" {
		return nil
	}
	return []string{sasl.Plain, sasl.Login}
}

func (s *session) Auth(mechanism string) (sasl.Server, error) {
	check := func(user, password string) error {
		if user != s.sink.opts.Username || password != s.sink.opts.Password {
			return smtp.ErrAuthFailed
		}
		s.authed = true
		return nil
	}
	switch mechanism {
	case sasl.Plain:
		return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
	case sasl.Login:
		return &login{check: check}, nil
	}
	return nil, smtp.ErrAuthUnknownMechanism
}

// login is the server's side of AUTH LOGIN, with or without an initial response.
type login struct {
	check func(user, password string) error
	user  *string
}

func (l *login) Next(response []byte) ([]byte, bool, error) {
	switch {
	case response == nil:
		return []byte("Username:"), false, nil
	case l.user == nil:
		user := string(response)
		l.user = &user
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(*l.user, string(response))
}

func (s *session) Mail(from string, _ *smtp.MailOptions) error {
	if err := s.sink.knock(s.conn.Conn().RemoteAddr().String()); err != nil {
		return err
	}
	if !s.authed {
		return refusal(530, smtp.EnhancedCode{5, 7, 0}, "Authentication required")
	}
	s.from = from
	return nil
}

func (s *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	sc := read(to)
	if sc.refusal != nil && (sc.tries == 0 || s.sink.tries.refuse(to, sc.tries)) {
		return sc.refusal
	}
	if sc.decides() && !s.deciding.decides() {
		s.deciding = sc
	}
	s.to = append(s.to, to)
	return nil
}

func (s *session) Data(r io.Reader) error {
	entry := Entry{From: s.from, To: s.to, Connection: s.number}
	if err := s.receive(r, &entry); err != nil {
		return err
	}
	sc := s.deciding
	if sc.final != nil {
		return sc.final
	}
	if !sc.silent || sc.accept {
		if !s.pause(sc.delay) {
			return errGone
		}
		entry.Answered = !sc.silent
		if err := s.sink.ledger.add(entry); err != nil {
			return refusal(451, smtp.EnhancedCode{4, 3, 0}, "The ledger cannot be written")
		}
	}
	if !sc.silent {
		return nil
	}
	if !sc.drop {
		s.untilGone()
	}
	_ = s.conn.Conn().Close() // the reply that the server now writes goes nowhere
	return errGone
}

// errGone ends a transaction whose client is not there any more.
var errGone = errors.New("the client has gone")

// receive reads the message to its end and notes its size and Message-ID.
func (s *session) receive(r io.Reader, e *Entry) error {
	var kept bytes.Buffer
	counted := &counter{r: r, keep: &kept, most: s.sink.opts.KeepBody}
	br := bufio.NewReader(counted)
	// A message without a proper header is accepted too: its id is just empty.
	header, _ := textproto.NewReader(br).ReadMIMEHeader()
	e.MessageID = strings.Trim(strings.TrimSpace(header.Get("Message-Id")), "<>")
	if _, err := io.Copy(io.Discard, br); err != nil {
		return err
	}
	e.Size = counted.n
	e.Body = kept.String()
	return nil
}

// counter counts what passes and keeps its beginning.
type counter struct {
	r    io.Reader
	n    int64
	keep *bytes.Buffer
	most int
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	if room := c.most - c.keep.Len(); room > 0 {
		c.keep.Write(b[:min(n, room)])
	}
	return n, err
}

// pause waits as the script and the options want; false when the sink closes.
func (s *session) pause(d time.Duration) bool {
	if s.sink.opts.Delay != nil {
		d += s.sink.opts.Delay()
	}
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.sink.done:
		return false
	}
}

// untilGone reads, and forgets, until the client hangs up or the sink closes.
func (s *session) untilGone() {
	c := s.conn.Conn()
	_ = c.SetDeadline(time.Time{})
	_, _ = io.Copy(io.Discard, c)
}
