package house_test

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/services/house/housetest"
)

// secret is the password in every environment of this test; no line may show it.
const secret = "hunter2-is-no-password"

// A wrong setting ends the real program with code 2 and one line that names the
// variable and says what it should be, before anything is connected to.
func TestWrongSettingsEndTheStart(t *testing.T) {
	t.Parallel()
	postgres, bus, mail := untouched(t, "PostgreSQL"), untouched(t, "NATS"), untouched(t, "the mail server")
	right := map[string]string{
		"DATABASE_URL": "postgres://posthouse:" + secret + "@" + postgres + "/posthouse?sslmode=disable",
		"NATS_URL":     "nats://" + bus, "NATS_USER": "service", "NATS_PASSWORD": secret,
		"MAIL_SERVER_HOST": host(mail), "MAIL_SERVER_PORT": port(mail), "MAIL_SERVER_TLS": "none",
		"MAIL_SERVER_USERNAME": "post", "MAIL_SERVER_PASSWORD": secret, "MAIL_SERVER_FROM_ADDRESS": "post@house.example",
		"HEALTH_LISTEN": "127.0.0.1:0",
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	every := []string{housetest.Sender, housetest.Watchdog, housetest.DeadLetter}
	sender, watchdog := every[:1], every[1:2]
	for _, c := range []struct {
		name     string
		programs []string
		set      map[string]string
		variable string // that the line begins with
		wanted   string // what the line says it should be
	}{
		{"no database", every, map[string]string{"DATABASE_URL": ""}, "DATABASE_URL", "postgres://user:password@host:5432/posthouse"},
		{"another database", every, map[string]string{"DATABASE_URL": "mysql://root:" + secret + "@" + postgres + "/x"}, "DATABASE_URL", "must be a PostgreSQL URL"},
		{"a port that is none", every, map[string]string{"DATABASE_URL": "postgres://p:" + secret + "@127.0.0.1:x/posthouse"}, "DATABASE_URL", "must be a PostgreSQL URL"},
		{"an sslmode that is none", every, map[string]string{"DATABASE_URL": "postgres://p:" + secret + "@" + postgres + "/x?sslmode=tls"}, "DATABASE_URL", "verify-full"},
		{"a secret that is not there", every, map[string]string{"NATS_PASSWORD": "", "NATS_PASSWORD_FILE": "/nowhere"}, "NATS_PASSWORD", "no such file"},
		{"a secret that is empty", every, map[string]string{"NATS_PASSWORD": "", "NATS_PASSWORD_FILE": empty}, "NATS_PASSWORD", "it is empty"},
		{"too few connections", every, map[string]string{"DATABASE_MAX_CONNS": "0"}, "DATABASE_MAX_CONNS", "1 to 1000"},
		{"a password in the NATS URL", every, map[string]string{"NATS_URL": "nats://a:" + secret + "@" + bus}, "NATS_URL", "use NATS_USER and NATS_PASSWORD"},
		{"another bus", every, map[string]string{"NATS_URL": "amqp://" + bus}, "NATS_URL", "nats, tls, ws or wss"},
		{"half a login", every, map[string]string{"NATS_USER": ""}, "NATS_USER", "NATS_PASSWORD"},
		{"a health address without a port", every, map[string]string{"HEALTH_LISTEN": "localhost"}, "HEALTH_LISTEN", "host:port"},
		{"a level that is none", every, map[string]string{"LOG_LEVEL": "loud"}, "LOG_LEVEL", "trace, debug, info, warn, error"},
		{"a time without a unit", every, map[string]string{"SHUTDOWN_TIMEOUT": "30"}, "SHUTDOWN_TIMEOUT", "30s, 5m or 1h"},
		{"a misspelt name", every, map[string]string{"SHUTDOWN_TIMOUT": "30s"}, "SHUTDOWN_TIMOUT", "SHUTDOWN_TIMEOUT"},
		{"a name of another service, misspelt", every, map[string]string{"MAIL_SEND_CONCURENCY": "8"}, "MAIL_SEND_CONCURENCY", "MAIL_SEND_CONCURRENCY"},
		{"a name of nobody's", every, map[string]string{"POSTHOUSE_TURBO": "on"}, "POSTHOUSE_TURBO", "not a setting"},
		{"a collector that is none", every, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318"}, "OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"},
		{"no mail server", sender, map[string]string{"MAIL_SERVER_HOST": "", "MAIL_SERVER_TLS": "required"}, "MAIL_SERVER_HOST", "must be"},
		{"a mail server with a port in its name", sender, map[string]string{"MAIL_SERVER_HOST": "mail/25", "MAIL_SERVER_TLS": "required"}, "MAIL_SERVER_HOST", "host name"},
		{"a port beyond all", sender, map[string]string{"MAIL_SERVER_PORT": "70000"}, "MAIL_SERVER_PORT", "1 to 65535"},
		{"a word for TLS", sender, map[string]string{"MAIL_SERVER_TLS": "yes"}, "MAIL_SERVER_TLS", "none, opportunistic, required, implicit"},
		{"a password in plain text", sender, map[string]string{"MAIL_SERVER_HOST": "mail.example.org"}, "MAIL_SERVER_TLS", "use required or implicit"},
		{"an account without a password", sender, map[string]string{"MAIL_SERVER_PASSWORD": ""}, "MAIL_SERVER_PASSWORD", "MAIL_SERVER_USERNAME"},
		{"a sender that is no address", sender, map[string]string{"MAIL_SERVER_FROM_ADDRESS": "post house"}, "MAIL_SERVER_FROM_ADDRESS", "no mail address"},
		{"a hold below the time-outs", sender, map[string]string{"MAX_HOLD": "10s"}, "MAX_HOLD", "at least"},
		{"an idle poll below the poll", sender, map[string]string{"SENDER_IDLE_POLL": "100ms", "SENDER_POLL": "1s"}, "SENDER_IDLE_POLL", "SENDER_POLL"},
		{"a lease too short", sender, map[string]string{"SENDER_LEASE": "10ms"}, "SENDER_LEASE", "1s to 10m"},
		{"a batch too large", sender, map[string]string{"INTAKE_BATCH": "5000"}, "INTAKE_BATCH", "1 to 1000"},
		{"a backoff that shrinks", append(sender, watchdog...), map[string]string{"RETRY_MAIL_MAX_BACKOFF": "1s"}, "RETRY_MAIL_MAX_BACKOFF", "RETRY_MAIL_INITIAL_BACKOFF"},
		{"a policy that is none", append(sender, watchdog...), map[string]string{"RETRY_MAIL_ON_UNKNOWN": "guess"}, "RETRY_MAIL_ON_UNKNOWN", "retry, hold"},
		{"a sweep too rare", watchdog, map[string]string{"WATCHDOG_SWEEP": "2h"}, "WATCHDOG_SWEEP", "100ms to 1h"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, program := range c.programs {
				environ := maps.Clone(right)
				maps.Copy(environ, c.set)
				p := housetest.Exec(t, program, environment(environ))
				code := p.Wait(30 * time.Second)
				said := strings.TrimSpace(p.Log.String())
				begin := program + ": configuration: " + c.variable
				switch {
				case code != 2:
					t.Errorf("%s ended with code %d, want 2: %s", program, code, said)
				case strings.Contains(said, "\n"), !strings.HasPrefix(said, begin), !strings.Contains(strings.TrimPrefix(said, begin), c.wanted):
					t.Errorf("%s said %q, want one line that begins with %q and says %q", program, said, begin, c.wanted)
				}
				if strings.Contains(said, secret) {
					t.Errorf("%s shows a secret: %s", program, said)
				}
			}
		})
	}
	t.Run("all at once", func(t *testing.T) {
		environ := maps.Clone(right)
		maps.Copy(environ, map[string]string{"DATABASE_URL": "", "LOG_LEVEL": "loud", "MAIL_SERVER_PORT": "0", "SENDER_SLOTS": "none"})
		p := housetest.Exec(t, housetest.Sender, environment(environ))
		code, said := p.Wait(30*time.Second), p.Log.String()
		for _, name := range []string{"DATABASE_URL", "LOG_LEVEL", "MAIL_SERVER_PORT", "SENDER_SLOTS"} {
			if n := strings.Count(said, "\n  "+name+": "); n != 1 {
				t.Errorf("%s has %d lines, want one of its own", name, n)
			}
		}
		if code != 2 || !strings.Contains(said, "4 faults") {
			t.Errorf("ended with code %d and said %q, want 4 faults", code, said)
		}
	})
}

// untouched is the address of a listener that no program may connect to.
func untouched(t *testing.T, what string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
			t.Errorf("a program with wrong settings connected to %s", what)
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func host(address string) string { h, _, _ := net.SplitHostPort(address); return h }
func port(address string) string { _, p, _ := net.SplitHostPort(address); return p }

func environment(values map[string]string) []string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, fmt.Sprintf("%s=%s", name, values[name]))
	}
	return lines
}
