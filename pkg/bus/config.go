package bus

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Config says how to reach NATS. The tags are read by the configuration of the
// process; doc and secret feed its table.
type Config struct {
	URL         string `env:"NATS_URL" envDefault:"nats://127.0.0.1:4222" doc:"servers, separated by commas; nats://, tls:// or ws(s)://; no user or password in it"`
	User        string `env:"NATS_USER" doc:"user name"`
	Password    string `env:"NATS_PASSWORD" secret:"true" json:"-" doc:"password of NATS_USER"`
	CredsFile   string `env:"NATS_CREDS_FILE" doc:"credentials file (JWT and nkey), instead of user and password"`
	CAFile      string `env:"NATS_CA_FILE" doc:"PEM file of the authorities that sign the server's certificate; empty = those of the system"`
	CertFile    string `env:"NATS_CERT_FILE" doc:"PEM file of the client certificate"`
	KeyFile     string `env:"NATS_KEY_FILE" doc:"PEM file of the client certificate's key"`
	InboxPrefix string `env:"NATS_INBOX_PREFIX" doc:"prefix of the subjects on which answers arrive; the server's permissions name it (_INBOX.services in the shipped configuration); empty = _INBOX"`
}

// String shows where and as whom, never the password.
func (c Config) String() string { return fmt.Sprintf("nats %s as %q", c.URL, c.User) }

// GoString is String.
func (c Config) GoString() string { return c.String() }

// Validate reports every fault at once; each names its variable, none shows a
// secret.
func (c Config) Validate() error {
	var errs []error
	fault := func(name, format string, a ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", name, fmt.Sprintf(format, a...)))
	}
	for server := range strings.SplitSeq(c.URL, ",") {
		u, err := url.Parse(strings.TrimSpace(server))
		switch {
		case err != nil || u.Host == "" || u.Hostname() == "":
			// The text of the error would repeat the URL, and with it a password.
			fault("NATS_URL", "is not a list of URLs such as nats://127.0.0.1:4222")
		case u.User != nil:
			fault("NATS_URL", "must not hold a user or password: use NATS_USER and NATS_PASSWORD, which are never logged")
		case u.Scheme != "nats" && u.Scheme != "tls" && u.Scheme != "ws" && u.Scheme != "wss":
			fault("NATS_URL", "scheme %q is not nats, tls, ws or wss", u.Scheme)
		}
	}
	if c.Password != "" && c.User == "" {
		fault("NATS_USER", "is needed with NATS_PASSWORD")
	}
	if c.User != "" && c.Password == "" {
		fault("NATS_PASSWORD", "is needed with NATS_USER")
	}
	if c.CredsFile != "" && c.User != "" {
		fault("NATS_CREDS_FILE", "excludes NATS_USER")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		fault("NATS_CERT_FILE", "and NATS_KEY_FILE go together")
	}
	for name, file := range map[string]string{"NATS_CREDS_FILE": c.CredsFile, "NATS_CA_FILE": c.CAFile, "NATS_CERT_FILE": c.CertFile, "NATS_KEY_FILE": c.KeyFile} {
		if file == "" {
			continue
		}
		f, err := os.Open(file)
		if err != nil {
			fault(name, "%v", err)
			continue
		}
		_ = f.Close() // opened for reading only, nothing can be lost
	}
	if c.InboxPrefix != "" && !prefix(c.InboxPrefix) {
		fault("NATS_INBOX_PREFIX", "%.80q is not a subject without wildcards and without a dot at its end", c.InboxPrefix)
	}
	return errors.Join(errs...)
}

// prefix tells whether s is a plain subject of printable ASCII tokens.
func prefix(s string) bool {
	for token := range strings.SplitSeq(s, ".") {
		if token == "" {
			return false
		}
		for _, r := range token {
			if r <= ' ' || r > '~' || r == '*' || r == '>' {
				return false
			}
		}
	}
	return true
}
