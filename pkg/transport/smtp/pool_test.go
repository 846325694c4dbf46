package smtp_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/pkg/transport/smtp"
)

func TestConnectionsAreKeptAndBounded(t *testing.T) {
	t.Parallel()
	s := sink(t, smtpsink.Options{})
	c := config(s.Host(), s.Port())
	c.MaxConnections, c.MaxPerConnection = 1, 3
	tr := open(t, c)
	for i, to := range []string{"ok", "refuse", "spam", "ok", "greylist", "greylist", "ok"} {
		out := tr.Send(t.Context(), message(t, to+"@x.test"))
		if out.Verdict == delivery.Unknown || out.Verdict == delivery.Interrupted {
			t.Errorf("%d: %+v", i, out)
		}
	}
	if s.Connections() != 3 || s.Count() != 4 { // 7 messages, 3 to a connection
		t.Errorf("%d connections, %d accepted", s.Connections(), s.Count())
	}
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	closed := make(chan string, 1)
	host, port := raw(t, func(_ int, l *line) {
		l.greet()
		last := ""
		serve(l, map[string]string{"DATA": "354 go"}, func(s string) { last = s })
		closed <- last
	})
	c := config(host, port)
	c.IdleTimeout = 20 * time.Millisecond
	tr := open(t, c)
	expect(t, tr.Send(t.Context(), message(t, "a@x.test")), delivery.Accepted, "", smtp.PhaseFinal, "250")
	select {
	case last := <-closed:
		if last != "QUIT" {
			t.Errorf("the last word was %q", last)
		}
	case <-time.After(10 * time.Second):
		t.Error("the idle connection stays")
	}
}

// A kept connection may have died: the send begins anew, at once and once.
func TestReconnectsOnceOnAStaleConnection(t *testing.T) {
	t.Parallel()
	for name, die := range map[string]func(l *line){
		"EOF": func(l *line) { l.hear() },
		"421": func(l *line) { l.hear(); l.say("421 4.4.2 idle too long") },
		"421 at RCPT": func(l *line) {
			l.hear()
			l.say("250 ok")
			l.hear()
			l.say("421 4.4.2 bye")
		},
		"EOF after 354": func(l *line) { // a message too long for one write
			for _, r := range []string{"250 ok", "250 ok", "354 go"} {
				l.hear()
				l.say(r)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var connections, asked atomic.Int32
			host, port := raw(t, func(n int, l *line) {
				connections.Add(1)
				l.greet()
				if n == 0 { // one message goes well, then it dies
					for _, r := range []string{"250 ok", "250 ok", "354 go"} {
						l.hear()
						l.say(r)
					}
					l.body()
					l.say("250 ok")
					die(l)
					return
				}
				serve(l, map[string]string{"DATA": "354 go"}, func(string) {})
			})
			tr := open(t, config(host, port))
			long := smtp.Mail{Text: "x", Attachments: []smtp.Attachment{{Name: "a", Content: make([]byte, 2<<20)}}}
			for range 2 {
				m := message(t, "a@x.test")
				if name == "EOF after 354" {
					m = with(t, long, "a@x.test")
				}
				asked.Store(0)
				m.Proceed = func() error { asked.Add(1); return nil }
				expect(t, tr.Send(t.Context(), m), delivery.Accepted, "", smtp.PhaseFinal, "250")
				if asked.Load() != 1 {
					t.Errorf("Proceed was asked %d times", asked.Load())
				}
			}
			if connections.Load() != 2 {
				t.Errorf("%d connections", connections.Load())
			}
		})
	}
}

// A new connection that is lost is the server's trouble, and told as such.
func TestNoReconnectOnAFreshConnection(t *testing.T) {
	t.Parallel()
	var connections atomic.Int32
	host, port := raw(t, func(_ int, l *line) {
		connections.Add(1)
		l.greet()
		l.hear()
	})
	tr := open(t, config(host, port))
	expect(t, tr.Send(t.Context(), message(t, "a@x.test")), delivery.Refused, delivery.Transient, smtp.PhaseMail, smtp.CodeLost)
	if connections.Load() != 1 {
		t.Errorf("%d connections", connections.Load())
	}
}

// After Proceed nothing begins anew, even if the message is known not to have
// left.
func TestProceedIsAskedOncePerSend(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 100)
	host, port := raw(t, func(_ int, l *line) {
		l.greet("PIPELINING")
		serve(l, map[string]string{"DATA": "354 go"}, record(heard))
		close(heard)
	})
	tr := open(t, config(host, port))
	m := message(t, "a@x.test")
	m.Proceed = func() error { return errors.New("fenced off") }
	out := tr.Send(t.Context(), m)
	expect(t, out, delivery.Interrupted, "", smtp.PhaseBody, smtp.CodeInterrupted)
	if out.Answer.Text != "fenced off" {
		t.Errorf("%+v", out.Answer)
	}
	var last string
	for s := range heard {
		last = s
	}
	if last != "(cut)" {
		t.Errorf("the server last heard %s", last)
	}
}

// Without a free connection a send waits, and giving up costs no attempt.
func TestWaitingForAConnectionIsOurOwnDoing(t *testing.T) {
	t.Parallel()
	s := sink(t, smtpsink.Options{})
	c := config(s.Host(), s.Port())
	c.MaxConnections, c.SendTimeout = 1, 100*time.Millisecond
	tr := open(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan delivery.Outcome, 1)
	go func() { first <- tr.Send(ctx, message(t, "stall-accept@x.test")) }()
	wait, stop := context.WithTimeout(t.Context(), 10*time.Second)
	defer stop()
	if err := s.Wait(wait, 1); err != nil {
		t.Fatal(err)
	}
	expect(t, tr.Send(t.Context(), message(t, "ok@x.test")), delivery.Interrupted, "", smtp.PhaseWait, smtp.CodeInterrupted)
	cancel()
	expect(t, <-first, delivery.Unknown, "", smtp.PhaseFinal, smtp.CodeTimeout)
	// The slot is free again.
	expect(t, tr.Send(t.Context(), message(t, "ok@x.test")), delivery.Accepted, "", smtp.PhaseFinal, "250")
}
