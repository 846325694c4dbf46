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
// refuses there: both before the final dot. The message must be longer than
// what the kernels of both ends take in without a reader, which differs from
// machine to machine (net.ipv4.tcp_wmem, tcp_rmem).
func TestTroubleInTheBody(t *testing.T) {
	t.Parallel()
	attached := func(size int) smtp.Mail {
		return smtp.Mail{Text: "x", Attachments: []smtp.Attachment{{Name: "a", Content: bytes.Repeat([]byte("0123456789"), size/10)}}}
	}
	endless := attached(40_000_000)
	roomy := func(c smtp.Config) smtp.Config {
		c.MaxMessageBytes = 100_000_000
		return c
	}
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
		c := roomy(config(host, port))
		c.ReadTimeout = 300 * time.Millisecond
		m := with(t, endless, "a@x.test")
		m.Proceed = func() error { t.Error("Proceed was asked"); return nil }
		expect(t, open(t, c).Send(t.Context(), m), delivery.Refused, delivery.Transient, smtp.PhaseBody, smtp.CodeTimeout)
	})
	t.Run("hangs up", func(t *testing.T) {
		t.Parallel()
		host, port := raw(t, func(_ int, l *line) { begin(l); l.hear() })
		m := with(t, endless, "a@x.test")
		m.Proceed = func() error { t.Error("Proceed was asked"); return nil }
		expect(t, open(t, roomy(config(host, port))).Send(t.Context(), m), delivery.Refused, delivery.Transient, smtp.PhaseBody, smtp.CodeLost)
	})
	t.Run("passes whole", func(t *testing.T) {
		t.Parallel()
		s := sink(t, smtpsink.Options{})
		m := with(t, attached(3_000_000), "a@x.test")
		var early atomic.Bool
		m.Proceed = func() error { early.Store(s.Count() > 0); return nil }
		expect(t, open(t, config(s.Host(), s.Port())).Send(t.Context(), m), delivery.Accepted, "", smtp.PhaseFinal, "250")
		if early.Load() || s.Count() != 1 || s.Entries()[0].Size < 4_000_000 {
			t.Errorf("%+v", s.Entries())
		}
	})
}

// A reply too many, sent early, is not taken for the reply to the final dot.
func TestRepliesOutOfStep(t *testing.T) {
	t.Parallel()
	for extra, code := range map[string]string{"250 ok": smtp.CodeProtocol, "451 4.3.0 changed my mind": "451"} {
		host, port := raw(t, func(_ int, l *line) {
			l.greet()
			for _, r := range []string{"250 ok", "250 ok", "354 go\r\n" + extra} {
				l.hear()
				l.say(r)
			}
			l.body()
		})
		m := message(t, "a@x.test")
		m.Proceed = func() error { t.Error("Proceed was asked"); return nil }
		expect(t, open(t, config(host, port)).Send(t.Context(), m), delivery.Refused, delivery.Transient, smtp.PhaseBody, code)
	}
}
