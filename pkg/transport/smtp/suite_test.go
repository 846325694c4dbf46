package smtp_test

import (
	"strings"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/pkg/transport"
	"github.com/posthouse-io/posthouse/pkg/transport/smtp"
	"github.com/posthouse-io/posthouse/pkg/transport/transporttest"
)

const password = "correct horse battery"

// peer puts the sink, or for the babbling one a raw server, behind a transport.
func peer(t *testing.T, m transporttest.Mood, alter func(*smtpsink.Options, *smtp.Config)) transporttest.Peer {
	var cfg smtp.Config
	var arrived func() int
	if m == transporttest.Babbling {
		host, port := raw(t, func(_ int, l *line) {
			l.greet("AUTH PLAIN")
			auth := l.hear()
			long := strings.Repeat("no ", 300)
			l.say("535-5.7.8 "+auth+" means "+password, "535 5.7.8 "+long)
		})
		cfg, arrived = config(host, port), func() int { return 0 }
		cfg.Username, cfg.Password = "user", password
	} else {
		o := smtpsink.Options{Username: "user", Password: password}
		c := smtp.Defaults()
		if alter != nil {
			alter(&o, &c)
		}
		sink, err := smtpsink.Start(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := sink.Close(); err != nil {
				t.Error(err)
			}
		})
		cfg, arrived = config(sink.Host(), sink.Port()), sink.Count
		cfg.Username, cfg.Password = "user", password
		if alter != nil {
			cfg.TLS, cfg.CAFile = c.TLS, c.CAFile
		}
	}
	tr, err := smtp.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	local := map[transporttest.Mood]string{
		transporttest.Friendly: "ok", transporttest.Refusing: "refuse", transporttest.Babbling: "any",
		transporttest.Silent: "stall-accept", transporttest.Gone: "drop-accept",
	}[m]
	return transporttest.Peer{
		Transport: tr,
		Message:   func() transport.Message { return message(t, local+"@x.test") },
		Arrived:   arrived,
		Secrets:   []string{password, "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5"},
	}
}

func TestConformance(t *testing.T) {
	transporttest.Suite(t, transporttest.Fixture{New: func(t *testing.T, m transporttest.Mood) transporttest.Peer {
		return peer(t, m, nil)
	}})
}

func TestConformanceUnderTLS(t *testing.T) {
	transporttest.Suite(t, transporttest.Fixture{New: func(t *testing.T, m transporttest.Mood) transporttest.Peer {
		server, ca := certificate(t)
		return peer(t, m, func(o *smtpsink.Options, c *smtp.Config) {
			o.TLS, c.TLS, c.CAFile = server, smtp.TLSRequired, ca
		})
	}})
}
