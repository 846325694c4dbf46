package smtp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/posthouse-io/posthouse/pkg/trust"
)

// TLS policies.
const (
	TLSNone          = "none"          // plain text
	TLSOpportunistic = "opportunistic" // STARTTLS when offered; what is offered is verified
	TLSRequired      = "required"      // STARTTLS or nothing
	TLSImplicit      = "implicit"      // TLS from the first byte (RFC 8314)
)

// Config describes one mail server account. Start from Defaults when it does not
// come from the environment.
type Config struct {
	Host        string `env:"MAIL_SERVER_HOST,notEmpty" doc:"mail server (submission host)"`
	Port        int    `env:"MAIL_SERVER_PORT" envDefault:"587" doc:"port of the mail server"`
	TLS         string `env:"MAIL_SERVER_TLS" envDefault:"required" doc:"none, opportunistic, required (STARTTLS) or implicit"`
	CAFile      string `env:"MAIL_SERVER_CA_FILE" doc:"PEM file with further certificate authorities to trust"`
	Username    string `env:"MAIL_SERVER_USERNAME" doc:"account name; empty means no authentication"`
	Password    string `env:"MAIL_SERVER_PASSWORD" secret:"true" json:"-" doc:"password, API key or (xoauth2) access token of the account"`
	Auth        string `env:"MAIL_SERVER_AUTH" envDefault:"auto" doc:"auto (plain, else login), plain, login or xoauth2"`
	FromAddress string `env:"MAIL_SERVER_FROM_ADDRESS" doc:"From address of a mail that names none"`
	FromName    string `env:"MAIL_SERVER_FROM_NAME" doc:"display name beside MAIL_SERVER_FROM_ADDRESS"`
	ReplyTo     string `env:"MAIL_SERVER_REPLY_TO" doc:"Reply-To address of a mail that names none"`
	Helo        string `env:"MAIL_SERVER_HELO" doc:"name to introduce ourselves with; empty means the host name"`

	MaxConnections   int           `env:"MAIL_SERVER_MAX_CONNECTIONS" envDefault:"10" doc:"connections kept to the server at most"`
	MaxPerConnection int           `env:"MAIL_SERVER_MAX_MESSAGES_PER_CONNECTION" envDefault:"100" doc:"messages sent over one connection at most"`
	IdleTimeout      time.Duration `env:"MAIL_SERVER_IDLE_TIMEOUT" envDefault:"30s" doc:"an unused connection is closed after this time"`

	ConnectTimeout time.Duration `env:"MAIL_TRANSPORT_CONNECTION_TIMEOUT" envDefault:"5s" doc:"limit for opening a connection"`
	ReadTimeout    time.Duration `env:"MAIL_TRANSPORT_READ_TIMEOUT" envDefault:"30s" doc:"limit for the reply to one command"`
	SendTimeout    time.Duration `env:"MAIL_TRANSPORT_SEND_TIMEOUT" envDefault:"2m" doc:"limit for all that precedes the final dot"`
	FinalTimeout   time.Duration `env:"MAIL_TRANSPORT_FINAL_TIMEOUT" envDefault:"2m" doc:"limit for the reply to the final dot"`

	MaxBodyChars    int   `env:"MAIL_MAX_BODY_CHARS" envDefault:"1048576" doc:"characters in the text or the HTML body at most"`
	MaxMessageBytes int64 `env:"MAIL_MAX_MESSAGE_BYTES" envDefault:"26214400" doc:"encoded message at most, attachments included"`
}

// Defaults returns the configuration that the tags above describe, without a
// host.
func Defaults() Config {
	var c Config
	// The tags are constant and the tests parse them, so there is no error to see.
	_ = env.ParseWithOptions(&c, env.Options{Environment: map[string]string{"MAIL_SERVER_HOST": "-"}})
	c.Host = ""
	return c
}

// Validate names every fault at once, each by its variable, none with a secret.
func (c Config) Validate() error {
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf(name+": "+format, args...))
	}
	if c.Host == "" || strings.ContainsAny(c.Host, " \t\r\n/\\@") {
		fault("MAIL_SERVER_HOST", "%.64q is no host name", c.Host)
	}
	if c.Port < 1 || c.Port > 65535 {
		fault("MAIL_SERVER_PORT", "%d is no port (1 to 65535)", c.Port)
	}
	switch c.TLS {
	case TLSNone, TLSOpportunistic, TLSRequired, TLSImplicit:
	default:
		fault("MAIL_SERVER_TLS", "%.64q is none of none, opportunistic, required, implicit", c.TLS)
	}
	switch c.Auth {
	case "auto", "plain", "login", "xoauth2":
	default:
		fault("MAIL_SERVER_AUTH", "%.64q is none of auto, plain, login, xoauth2", c.Auth)
	}
	if c.Username != "" && c.Password == "" {
		fault("MAIL_SERVER_PASSWORD", "is empty although MAIL_SERVER_USERNAME is set")
	}
	if c.Username == "" && c.Password != "" {
		fault("MAIL_SERVER_USERNAME", "is empty although MAIL_SERVER_PASSWORD is set")
	}
	if c.Username != "" && c.TLS == TLSNone && !loopbackName(c.Host) {
		fault("MAIL_SERVER_TLS", "none would send the password in plain text; use required or implicit")
	}
	if strings.ContainsAny(c.Username, "\x00\x01\r\n") {
		fault("MAIL_SERVER_USERNAME", "contains control characters")
	}
	if strings.ContainsAny(c.Password, "\x00\x01\r\n") {
		fault("MAIL_SERVER_PASSWORD", "contains control characters")
	}
	if _, err := trust.Roots(c.CAFile); err != nil {
		fault("MAIL_SERVER_CA_FILE", "%w", err)
	}
	if c.FromAddress != "" {
		if _, err := parseMailbox(c.FromAddress); err != nil {
			fault("MAIL_SERVER_FROM_ADDRESS", "%w", err)
		}
	}
	if hasControl(c.FromName) {
		fault("MAIL_SERVER_FROM_NAME", "contains control characters")
	}
	if c.ReplyTo != "" {
		if _, err := parseMailbox(c.ReplyTo); err != nil {
			fault("MAIL_SERVER_REPLY_TO", "%w", err)
		}
	}
	if c.Helo != "" && !heloName(c.Helo) {
		fault("MAIL_SERVER_HELO", "%.64q is no host name", c.Helo)
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"MAIL_SERVER_MAX_CONNECTIONS", int64(c.MaxConnections)},
		{"MAIL_SERVER_MAX_MESSAGES_PER_CONNECTION", int64(c.MaxPerConnection)},
		{"MAIL_MAX_BODY_CHARS", int64(c.MaxBodyChars)},
		{"MAIL_MAX_MESSAGE_BYTES", c.MaxMessageBytes},
	} {
		if n.value < 1 {
			fault(n.name, "%d must be at least 1", n.value)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"MAIL_SERVER_IDLE_TIMEOUT", c.IdleTimeout},
		{"MAIL_TRANSPORT_CONNECTION_TIMEOUT", c.ConnectTimeout},
		{"MAIL_TRANSPORT_READ_TIMEOUT", c.ReadTimeout},
		{"MAIL_TRANSPORT_SEND_TIMEOUT", c.SendTimeout},
		{"MAIL_TRANSPORT_FINAL_TIMEOUT", c.FinalTimeout},
	} {
		if d.value <= 0 {
			fault(d.name, "%s must be more than 0", d.value)
		}
	}
	return errors.Join(faults...)
}

// LongestSend bounds one Send whatever the server does: the dialogue up to the
// final dot, the wait for the reply to it, and clearing up.
func (c Config) LongestSend() time.Duration {
	return c.SendTimeout + c.FinalTimeout + c.ConnectTimeout + farewellTime
}

// String names the account without its password.
func (c Config) String() string {
	return fmt.Sprintf("smtp %s tls=%s user=%q", c.address(), c.TLS, c.Username)
}

// GoString keeps the password out of %#v as well.
func (c Config) GoString() string { return c.String() }

func (c Config) address() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }

// helo is the name for EHLO: the configured one, else the host's, else localhost.
func (c Config) helo() string {
	if c.Helo != "" {
		return c.Helo
	}
	if name, err := os.Hostname(); err == nil && heloName(name) {
		return name
	}
	return "localhost"
}

func heloName(s string) bool {
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-_:[]", r) {
			return false
		}
	}
	return s != "" && len(s) <= 255
}

// tlsConfig always verifies the server's certificate against its host name.
func (c Config) tlsConfig() (*tls.Config, error) {
	pool, err := trust.Roots(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("MAIL_SERVER_CA_FILE: %w", err)
	}
	return &tls.Config{
		ServerName:         c.Host,
		RootCAs:            pool,
		MinVersion:         tls.VersionTLS12,
		ClientSessionCache: tls.NewLRUClientSessionCache(8), // a cheaper handshake for the next connection
	}, nil
}

func loopbackName(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
