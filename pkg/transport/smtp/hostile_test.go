package smtp_test

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/pkg/transport/smtp"
)

// What a hostile or broken server does costs one bounded attempt.
func TestHostileServers(t *testing.T) {
	t.Parallel()
	trickle := func(l *line) { // a byte now and then, never a line
		for {
			if _, err := l.Write([]byte("2")); err != nil {
				return
			}
			wait := time.NewTimer(20 * time.Millisecond)
			<-wait.C
		}
	}
	quiet := func(l *line) {
		for l.hear() != "" {
		}
	}
	for _, c := range []struct {
		name  string
		play  func(l *line)
		phase delivery.Phase
		code  string
	}{
		{"garbage greeting", func(l *line) { l.say("SSH-2.0-OpenSSH_9.6"); quiet(l) }, smtp.PhaseGreeting, smtp.CodeProtocol},
		{"greeting of 1 MB", func(l *line) { l.say("220 " + strings.Repeat("x", 1<<20)); quiet(l) }, smtp.PhaseGreeting, smtp.CodeProtocol},
		{"endless greeting", func(l *line) { l.say(strings.Repeat("220-x\r\n", 100_000)); quiet(l) }, smtp.PhaseGreeting, smtp.CodeProtocol},
		{"NULs", func(l *line) { l.say("220\x00 x"); quiet(l) }, smtp.PhaseGreeting, smtp.CodeProtocol},
		{"554 greeting", func(l *line) { l.say("554 5.7.1 not you"); quiet(l) }, smtp.PhaseGreeting, "554"},
		{"421 greeting", func(l *line) { l.say("421 busy") }, smtp.PhaseGreeting, "421"},
		{"250 greeting", func(l *line) { l.say("250 hm"); quiet(l) }, smtp.PhaseGreeting, smtp.CodeProtocol},
		{"no greeting", quiet, smtp.PhaseGreeting, smtp.CodeTimeout},
		{"hang-up", func(*line) {}, smtp.PhaseGreeting, smtp.CodeLost},
		{"trickle", trickle, smtp.PhaseGreeting, smtp.CodeTimeout},
		{"EHLO of 100k lines", func(l *line) { l.say("220 x"); l.hear(); l.say(strings.Repeat("250-x\r\n", 100_000)); quiet(l) }, smtp.PhaseEhlo, smtp.CodeProtocol},
		{"EHLO and HELO refused", func(l *line) {
			l.say("220 x")
			l.hear()
			l.say("502 no")
			l.hear()
			l.say("550 no")
			quiet(l)
		}, smtp.PhaseEhlo, "550"},
		{"silence at MAIL", func(l *line) { l.greet("PIPELINING"); quiet(l) }, smtp.PhaseMail, smtp.CodeTimeout},
		{"codes that change", func(l *line) { l.greet(); l.hear(); l.say("250-a", "550 b"); quiet(l) }, smtp.PhaseMail, smtp.CodeProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			host, port := raw(t, func(_ int, l *line) { c.play(l) })
			cfg := config(host, port)
			cfg.ReadTimeout = 300 * time.Millisecond
			tr := open(t, cfg)
			m := message(t, "a@x.test")
			m.Proceed = func() error { t.Error("Proceed was asked"); return nil }
			began := time.Now()
			expect(t, tr.Send(t.Context(), m), delivery.Refused, delivery.Transient, c.phase, c.code)
			if d := time.Since(began); d > 5*time.Second {
				t.Errorf("it took %s", d)
			}
		})
	}
}

func TestOldServerWithoutEhlo(t *testing.T) {
	t.Parallel()
	host, port := raw(t, func(_ int, l *line) {
		l.say("220 old")
		l.hear()
		l.say("502 what is EHLO")
		serve(l, map[string]string{"DATA": "354 go"}, func(string) {})
	})
	expect(t, open(t, config(host, port)).Send(t.Context(), message(t, "a@x.test")), delivery.Accepted, "", smtp.PhaseFinal, "250")
}

func TestNobodyListens(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := l.Addr().(*net.TCPAddr)
	l.Close()
	out := open(t, config("127.0.0.1", a.Port)).Send(t.Context(), message(t, "a@x.test"))
	expect(t, out, delivery.Refused, delivery.Transient, smtp.PhaseDial, smtp.CodeDial)
}

// The connection is reset, not closed, after the final dot.
func TestResetAfterTheDot(t *testing.T) {
	t.Parallel()
	host, port := raw(t, func(_ int, l *line) {
		l.greet()
		for _, r := range []string{"250 ok", "250 ok", "354 go"} {
			l.hear()
			l.say(r)
		}
		l.body()
		_ = l.Conn.(*net.TCPConn).SetLinger(0)
	})
	expect(t, open(t, config(host, port)).Send(t.Context(), message(t, "a@x.test")), delivery.Unknown, "", smtp.PhaseFinal, smtp.CodeLost)
}

func TestSilenceAfterTheDotIsBounded(t *testing.T) {
	t.Parallel()
	s := sink(t, smtpsink.Options{})
	c := config(s.Host(), s.Port())
	c.FinalTimeout = 100 * time.Millisecond
	expect(t, open(t, c).Send(t.Context(), message(t, "stall@x.test")), delivery.Unknown, "", smtp.PhaseFinal, smtp.CodeTimeout)
	c.FinalTimeout, c.SendTimeout = 5*time.Second, time.Second
	expect(t, open(t, c).Send(t.Context(), message(t, "slow-1500ms@x.test")), delivery.Accepted, "", smtp.PhaseFinal, "250") // the limit before the dot does not count behind it
}

// The reply to the final dot does not come in time for the caller.
func TestDeadlineAfterTheDot(t *testing.T) {
	t.Parallel()
	s := sink(t, smtpsink.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	expect(t, open(t, config(s.Host(), s.Port())).Send(ctx, message(t, "stall-accept@x.test")), delivery.Unknown, "", smtp.PhaseFinal, smtp.CodeTimeout)
}

func TestContextEndsDuringTheDialogue(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{true, false} {
		var cancel context.CancelFunc
		ready := make(chan struct{})
		host, port := raw(t, func(_ int, l *line) {
			l.greet()
			l.hear() // MAIL
			<-ready
			cancel()
			for l.hear() != "" {
			}
		})
		var ctx context.Context
		if cancelled {
			ctx, cancel = context.WithCancel(t.Context())
		} else {
			ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			cancel = func() {}
		}
		close(ready)
		out := open(t, config(host, port)).Send(ctx, message(t, "a@x.test"))
		if cancelled {
			expect(t, out, delivery.Interrupted, "", smtp.PhaseMail, smtp.CodeInterrupted)
		} else {
			expect(t, out, delivery.Refused, delivery.Transient, smtp.PhaseMail, smtp.CodeTimeout)
		}
	}
}

// A server that stops reading in the middle of a long message, and one that
// refuses there: both before the final dot.
func TestTroubleInTheBody(t *testing.T) {
	t.Parallel()
	long := smtp.Mail{Text: "x", Attachments: []smtp.Attachment{{Name: "a", Content: bytes.Repeat([]byte("0123456789"), 300_000)}}}
	begin := func(l *line) {
		_ = l.Conn.(*net.TCPConn).SetReadBuffer(4096)
		l.greet()
		for _, r := range []string{"250 ok", "250 ok", "354 go"} {
			l.hear()
			l.say(r)
		}
	}
	t.Run("reads no further", func(t *testing.T) {
		t.Parallel()
		done := make(chan struct{})
		host, port := raw(t, func(_ int, l *line) { begin(l); <-done })
		t.Cleanup(func() { close(done) })
		c := config(host, port)
		c.ReadTimeout = 300 * time.Millisecond
		m := with(t, long, "a@x.test")
		m.Proceed = func() error { t.Error("Proceed was asked"); return nil }
		expect(t, open(t, c).Send(t.Context(), m), delivery.Refused, delivery.Transient, smtp.PhaseBody, smtp.CodeTimeout)
	})
	t.Run("hangs up", func(t *testing.T) {
		t.Parallel()
		host, port := raw(t, func(_ int, l *line) { begin(l); l.hear() })
		m := with(t, long, "a@x.test")
		m.Proceed = func() error { t.Error("Proceed was asked"); return nil }
		expect(t, open(t, config(host, port)).Send(t.Context(), m), delivery.Refused, delivery.Transient, smtp.PhaseBody, smtp.CodeLost)
	})
	t.Run("passes whole", func(t *testing.T) {
		t.Parallel()
		s := sink(t, smtpsink.Options{})
		m := with(t, long, "a@x.test")
		var early atomic.Bool
		m.Proceed = func() error { early.Store(s.Count() > 0); return nil }
		expect(t, open(t, config(s.Host(), s.Port())).Send(t.Context(), m), delivery.Accepted, "", smtp.PhaseFinal, "250")
		if early.Load() || s.Count() != 1 || s.Entries()[0].Size < 4_000_000 {
			t.Errorf("%+v", s.Entries())
		}
	})
}

func TestTLSPolicies(t *testing.T) {
	t.Parallel()
	server, ca := certificate(t)
	offers := sink(t, smtpsink.Options{TLS: server})
	implicit := sink(t, smtpsink.Options{TLS: server, ImplicitTLS: true})
	plain := sink(t, smtpsink.Options{})
	for _, c := range []struct {
		name, policy, ca string
		server           *smtpsink.Sink
		phase            delivery.Phase
		code             string // "": accepted
	}{
		{"required", smtp.TLSRequired, ca, offers, "", ""},
		{"required, not offered", smtp.TLSRequired, ca, plain, smtp.PhaseTLS, smtp.CodeNoTLS},
		{"required, unknown authority", smtp.TLSRequired, "", offers, smtp.PhaseTLS, smtp.CodeTLS},
		{"opportunistic", smtp.TLSOpportunistic, ca, offers, "", ""},
		{"opportunistic, not offered", smtp.TLSOpportunistic, ca, plain, "", ""},
		{"opportunistic, unknown authority", smtp.TLSOpportunistic, "", offers, smtp.PhaseTLS, smtp.CodeTLS},
		{"implicit", smtp.TLSImplicit, ca, implicit, "", ""},
		{"implicit against plain", smtp.TLSImplicit, ca, plain, smtp.PhaseTLS, smtp.CodeTLS},
		{"none", smtp.TLSNone, "", offers, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(c.server.Host(), c.server.Port())
			cfg.TLS, cfg.CAFile, cfg.ReadTimeout = c.policy, c.ca, 2*time.Second
			out := open(t, cfg).Send(t.Context(), message(t, "a@x.test"))
			if c.code == "" {
				expect(t, out, delivery.Accepted, "", smtp.PhaseFinal, "250")
			} else if out.Verdict != delivery.Refused || out.Answer.Category != delivery.Transient || out.Answer.Phase != c.phase || out.Answer.Code != c.code && c.code != smtp.CodeTLS {
				t.Errorf("%+v", out)
			}
		})
	}
}

// Plain text smuggled in behind the reply to STARTTLS is not believed.
func TestStartTLSInjection(t *testing.T) {
	t.Parallel()
	_, ca := certificate(t)
	host, port := raw(t, func(_ int, l *line) {
		l.greet("STARTTLS")
		l.hear()
		l.say("220 go", "250 injected")
		for l.hear() != "" {
		}
	})
	c := config(host, port)
	c.TLS, c.CAFile = smtp.TLSRequired, ca
	expect(t, open(t, c).Send(t.Context(), message(t, "a@x.test")), delivery.Refused, delivery.Transient, smtp.PhaseTLS, smtp.CodeProtocol)
}

func TestAuthentication(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 10)
	auth := func(mechanisms string, replies ...string) (string, int) {
		return raw(t, func(_ int, l *line) {
			l.greet("AUTH " + mechanisms)
			for _, r := range replies {
				heard <- l.hear()
				l.say(r)
			}
			serve(l, map[string]string{"DATA": "354 go"}, func(string) {})
		})
	}
	send := func(mechanism, host string, port int) delivery.Outcome {
		c := config(host, port)
		c.Auth, c.Username, c.Password = mechanism, "user", "secret-word"
		return open(t, c).Send(t.Context(), message(t, "a@x.test"))
	}
	host, port := auth("LOGIN PLAIN", "235 2.7.0 ok")
	expect(t, send("auto", host, port), delivery.Accepted, "", smtp.PhaseFinal, "250")
	if got := <-heard; got != "AUTH PLAIN AHVzZXIAc2VjcmV0LXdvcmQ=" {
		t.Error(got)
	}
	host, port = auth("LOGIN", "334 UGFzc3dvcmQ6", "235 ok")
	expect(t, send("auto", host, port), delivery.Accepted, "", smtp.PhaseFinal, "250")
	if a, b := <-heard, <-heard; a != "AUTH LOGIN dXNlcg==" || b != "c2VjcmV0LXdvcmQ=" {
		t.Error(a, b)
	}
	host, port = auth("XOAUTH2", "334 e30=", "535 5.7.8 expired")
	expect(t, send("xoauth2", host, port), delivery.Refused, delivery.Auth, smtp.PhaseAuth, "535")
	<-heard
	if b := <-heard; b != "" {
		t.Errorf("answered %q", b)
	}
	host, port = auth("PLAIN", "454 4.7.0 later")
	expect(t, send("plain", host, port), delivery.Refused, delivery.Transient, smtp.PhaseAuth, "454")
	<-heard
	host, port = auth("GSSAPI")
	expect(t, send("auto", host, port), delivery.Refused, delivery.Auth, smtp.PhaseAuth, smtp.CodeNoAuth)
	host, port = auth("PLAIN", "535 5.7.8 AHVzZXIAc2VjcmV0LXdvcmQ= is secret-word, c2VjcmV0LXdvcmQ=")
	out := send("plain", host, port)
	expect(t, out, delivery.Refused, delivery.Auth, smtp.PhaseAuth, "535")
	if out.Answer.Text != "[redacted] is [redacted], [redacted]" {
		t.Errorf("the text tells a secret: %s", out.Answer.Text)
	}
}
