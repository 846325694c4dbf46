package http

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/posthouse-io/posthouse/pkg/trust"
)

// Mode is when the backend has its say.
type Mode string

const (
	Sync  Mode = "sync"  // in the answer
	Async Mode = "async" // later, by the API
)

// Config describes the backend.
type Config struct {
	Endpoint     string `env:"FORWARDING_HTTP_ENDPOINT" doc:"URL of the receiver backend that documents are posted to"`
	AllowPrivate bool   `env:"FORWARDING_HTTP_ALLOW_PRIVATE" envDefault:"false" doc:"the backend may have a private or loopback address, and then http:// is allowed"`
	CAFile       string `env:"FORWARDING_HTTP_CA_FILE" doc:"PEM file with further certificate authorities to trust"`
	CertFile     string `env:"FORWARDING_HTTP_CERT_FILE" doc:"PEM file of the client certificate"`
	KeyFile      string `env:"FORWARDING_HTTP_KEY_FILE" doc:"PEM file of the client certificate's key"`

	BearerToken    string   `env:"FORWARDING_HTTP_BEARER_TOKEN" secret:"true" json:"-" doc:"token for the Authorization header"`
	Username       string   `env:"FORWARDING_HTTP_USERNAME" doc:"user name for basic authentication"`
	Password       string   `env:"FORWARDING_HTTP_PASSWORD" secret:"true" json:"-" doc:"password of FORWARDING_HTTP_USERNAME"`
	SigningSecrets []string `env:"FORWARDING_HTTP_SIGNING_SECRETS" envSeparator:"," secret:"true" json:"-" doc:"secrets (whsec_...) that sign the request as Standard Webhooks says; several while one is replaced"`
	Headers        []string `env:"FORWARDING_HTTP_HEADERS" envSeparator:";" secret:"true" json:"-" doc:"further headers, name: value, separated by semicolons"`
	Details        bool     `env:"FORWARDING_HTTP_VERIFICATION_DETAILS" envDefault:"false" doc:"send what the verifiers found as Posthouse-Verification-Details (base64 of the JSON)"`

	ConnectTimeout  time.Duration `env:"FORWARDING_HTTP_CONNECT_TIMEOUT" envDefault:"5s" min:"10ms" max:"1m" doc:"limit for opening a connection, and again for its TLS handshake"`
	ResponseTimeout time.Duration `env:"FORWARDING_HTTP_RESPONSE_TIMEOUT" envDefault:"2m" min:"10ms" max:"30m" doc:"limit for the answer after the last byte of the body"`
	Timeout         time.Duration `env:"FORWARDING_HTTP_TIMEOUT" envDefault:"5m" min:"10ms" max:"1h" doc:"limit for one forward from beginning to end"`
	IdleTimeout     time.Duration `env:"FORWARDING_HTTP_IDLE_TIMEOUT" envDefault:"30s" min:"1s" max:"10m" doc:"an unused connection is closed after this time; keep it below that of the backend"`
}

// LongestForward bounds one Forward whatever the backend does.
func (c Config) LongestForward() time.Duration { return c.Timeout + time.Second }

// Check names every fault at once, each by its variable, none with a secret.
func (c Config) Check() error {
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf(name+": "+format, args...))
	}
	if u, err := url.Parse(c.Endpoint); err != nil || u.Host == "" || u.Hostname() == "" || u.Opaque != "" {
		fault("FORWARDING_HTTP_ENDPOINT", "is not a URL such as https://backend.example/documents") // its text may hold a password
	} else {
		switch {
		case u.User != nil:
			fault("FORWARDING_HTTP_ENDPOINT", "must not hold a user or password: use FORWARDING_HTTP_USERNAME and FORWARDING_HTTP_PASSWORD")
		case u.Fragment != "":
			fault("FORWARDING_HTTP_ENDPOINT", "must not have a fragment (#)")
		}
		switch {
		case u.Scheme == "http" && !c.AllowPrivate:
			fault("FORWARDING_HTTP_ENDPOINT", "http:// would send documents in plain text; use https://, or inside a private network set FORWARDING_HTTP_ALLOW_PRIVATE")
		case u.Scheme != "http" && u.Scheme != "https":
			fault("FORWARDING_HTTP_ENDPOINT", "scheme %.16q is not https", u.Scheme)
		}
	}
	if _, err := trust.Roots(c.CAFile); err != nil {
		fault("FORWARDING_HTTP_CA_FILE", "%w", err)
	}
	switch {
	case (c.CertFile == "") != (c.KeyFile == ""):
		fault("FORWARDING_HTTP_CERT_FILE", "and FORWARDING_HTTP_KEY_FILE go together")
	case c.CertFile != "":
		if _, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile); err != nil {
			fault("FORWARDING_HTTP_CERT_FILE", "%w", err)
		}
	}
	switch {
	case c.BearerToken != "" && c.Username != "":
		fault("FORWARDING_HTTP_BEARER_TOKEN", "excludes FORWARDING_HTTP_USERNAME")
	case (c.Username == "") != (c.Password == ""):
		fault("FORWARDING_HTTP_USERNAME", "and FORWARDING_HTTP_PASSWORD go together")
	case strings.ContainsRune(c.Username, ':'):
		fault("FORWARDING_HTTP_USERNAME", "must not contain a colon")
	}
	if !httpguts.ValidHeaderFieldValue(c.BearerToken) || strings.ContainsAny(c.BearerToken, " \t") {
		fault("FORWARDING_HTTP_BEARER_TOKEN", "contains blanks or control characters")
	}
	if _, err := parseSecrets(c.SigningSecrets); err != nil {
		fault("FORWARDING_HTTP_SIGNING_SECRETS", "%w", err)
	}
	if _, err := parseHeaders(c.Headers); err != nil {
		fault("FORWARDING_HTTP_HEADERS", "%w", err)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"FORWARDING_HTTP_CONNECT_TIMEOUT", c.ConnectTimeout},
		{"FORWARDING_HTTP_RESPONSE_TIMEOUT", c.ResponseTimeout},
		{"FORWARDING_HTTP_TIMEOUT", c.Timeout},
		{"FORWARDING_HTTP_IDLE_TIMEOUT", c.IdleTimeout},
	} {
		if d.value <= 0 {
			fault(d.name, "%s must be more than 0", d.value)
		}
	}
	if c.Timeout < c.ResponseTimeout {
		fault("FORWARDING_HTTP_TIMEOUT", "%s is less than FORWARDING_HTTP_RESPONSE_TIMEOUT (%s)", c.Timeout, c.ResponseTimeout)
	}
	return errors.Join(faults...)
}

// String names the host without secrets; the path may hold one.
func (c Config) String() string {
	u, err := url.Parse(c.Endpoint)
	if err != nil {
		return "http backend"
	}
	return "http backend " + u.Scheme + "://" + u.Host
}

// GoString keeps the secrets out of %#v as well.
func (c Config) GoString() string { return c.String() }

// ours are the headers that a configured one must not replace.
const ours = " Authorization Content-Type Content-Length Host Connection Transfer-Encoding Trailer Te Upgrade Expect Idempotency-Key Traceparent Webhook-Id Webhook-Timestamp Webhook-Signature "

// parseHeaders reads "name: value" lines.
func parseHeaders(lines []string) (map[string]string, error) {
	headers := map[string]string{}
	if len(lines) > 100 {
		return nil, fmt.Errorf("more than 100 headers")
	}
	for i, line := range lines {
		name, value, found := strings.Cut(line, ":")
		name, value = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)), strings.TrimSpace(value)
		switch {
		case !found || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value):
			return nil, fmt.Errorf("item %d is not name: value", i+1)
		case strings.Contains(ours, " "+name+" ") || strings.HasPrefix(name, "Posthouse-"):
			return nil, fmt.Errorf("item %d: %.40s is set by us", i+1, name)
		}
		headers[name] = value
	}
	return headers, nil
}

func (c Config) tlsConfig() (*tls.Config, error) {
	pool, err := trust.Roots(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("FORWARDING_HTTP_CA_FILE: %w", err)
	}
	t := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(8)}
	if c.CertFile != "" {
		// Read at each handshake, so a renewed certificate needs no restart.
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
			return &pair, err
		}
	}
	return t, nil
}
