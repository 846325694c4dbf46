package nats

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Modes.
const (
	JetStream = "jetstream"
	Core      = "core"
)

// Config describes where documents are published.
type Config struct {
	Subject string `env:"FORWARDING_NATS_SUBJECT" doc:"subject that documents are published to; {tenant} in it stands for the tenant"`
	Mode    string `env:"FORWARDING_NATS_MODE" envDefault:"jetstream" doc:"jetstream (a stream acknowledges) or core (a request that the backend answers)"`
	Stream  string `env:"FORWARDING_NATS_STREAM" doc:"name of the stream that must take the message; empty means any"`

	URL       string `env:"FORWARDING_NATS_URL" doc:"servers of the backend, separated by commas; empty means those of NATS_URL"`
	User      string `env:"FORWARDING_NATS_USER" doc:"user name for FORWARDING_NATS_URL"`
	Password  string `env:"FORWARDING_NATS_PASSWORD" secret:"true" json:"-" doc:"password of FORWARDING_NATS_USER"`
	CredsFile string `env:"FORWARDING_NATS_CREDS_FILE" doc:"credentials file (JWT and nkey), instead of user and password"`
	CAFile    string `env:"FORWARDING_NATS_CA_FILE" doc:"PEM file of the authorities that sign the certificate of FORWARDING_NATS_URL"`

	Timeout time.Duration `env:"FORWARDING_NATS_TIMEOUT" envDefault:"30s" min:"10ms" max:"10m" doc:"limit for one forward from beginning to end"`
}

// LongestForward bounds one Forward whatever the server does.
func (c Config) LongestForward() time.Duration { return c.Timeout + time.Second }

// tenantPlace stands for the tenant in a subject.
const tenantPlace = "{tenant}"

// Check names every fault at once, each by its variable, none with a secret.
func (c Config) Check() error {
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf(name+": "+format, args...))
	}
	switch s := strings.ReplaceAll(c.Subject, tenantPlace, "t"); {
	case !subject(s):
		fault("FORWARDING_NATS_SUBJECT", "%.200q is not a subject to publish to", c.Subject)
	case strings.HasPrefix(s, "posthouse.") || strings.HasPrefix(s, "$") || strings.HasPrefix(s, "_INBOX."):
		// A document that came back as a request would go round in circles.
		fault("FORWARDING_NATS_SUBJECT", "%.200q is a subject of ours or of the server's own", c.Subject)
	}
	if c.Mode != JetStream && c.Mode != Core {
		fault("FORWARDING_NATS_MODE", "%.64q is neither jetstream nor core", c.Mode)
	}
	if c.Stream != "" && (c.Mode == Core || strings.ContainsAny(c.Stream, " .*>/\\\t\r\n")) {
		fault("FORWARDING_NATS_STREAM", "%.64q is no stream name, or the mode is core", c.Stream)
	}
	if c.URL != "" {
		for server := range strings.SplitSeq(c.URL, ",") {
			u, err := url.Parse(strings.TrimSpace(server))
			switch {
			case err != nil || u.Hostname() == "":
				fault("FORWARDING_NATS_URL", "is not a list of URLs such as tls://nats.backend.example:4222")
			case u.User != nil:
				fault("FORWARDING_NATS_URL", "must not hold a user or password: use FORWARDING_NATS_USER and FORWARDING_NATS_PASSWORD")
			case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
				fault("FORWARDING_NATS_URL", "scheme %.16q is not nats, tls, ws or wss", u.Scheme)
			}
		}
	}
	if (c.User == "") != (c.Password == "") {
		fault("FORWARDING_NATS_USER", "and FORWARDING_NATS_PASSWORD go together")
	}
	if c.CredsFile != "" && c.User != "" {
		fault("FORWARDING_NATS_CREDS_FILE", "excludes FORWARDING_NATS_USER")
	}
	if c.URL == "" && (c.User != "" || c.CredsFile != "" || c.CAFile != "") {
		fault("FORWARDING_NATS_URL", "is empty although credentials or an authority for it are set")
	}
	if c.Timeout <= 0 {
		fault("FORWARDING_NATS_TIMEOUT", "%s must be more than 0", c.Timeout)
	}
	return errors.Join(faults...)
}

// String shows where, never the password.
func (c Config) String() string { return fmt.Sprintf("nats %s %s", c.Mode, c.Subject) }

// GoString keeps the password out of %#v as well.
func (c Config) GoString() string { return c.String() }

// subject tells whether s can be published to: tokens without wildcards.
func subject(s string) bool {
	for token := range strings.SplitSeq(s, ".") {
		if token == "" || strings.ContainsAny(token, "*> \t\r\n\x00") {
			return false
		}
	}
	return len(s) <= 255
}
