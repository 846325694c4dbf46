package smtp_test

import (
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/pkg/transport/smtp"
)

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
