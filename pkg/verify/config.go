package verify

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/trust"
)

// MaxVerifiers bounds how many may be configured.
const MaxVerifiers = 10

// Config describes the verifiers. Which documents they are asked about, and what
// an outage means, is document.Policy.
type Config struct {
	Verifiers []string `env:"VERIFICATION_VERIFIERS" envSeparator:";" doc:"verifiers to ask, name=URL, separated by semicolons"`
	Tokens    []string `env:"VERIFICATION_TOKENS" envSeparator:";" secret:"true" json:"-" doc:"bearer tokens for them, name=token, separated by semicolons"`
	Timeouts  []string `env:"VERIFICATION_TIMEOUTS" envSeparator:";" doc:"time limits that differ from VERIFICATION_TIMEOUT, name=duration, separated by semicolons"`
	Outbound  bool     `env:"VERIFICATION_OUTBOUND_ENABLED" envDefault:"false" doc:"ask the verifiers about each document before it is sent"`

	Timeout        time.Duration `env:"VERIFICATION_TIMEOUT" envDefault:"30s" min:"10ms" max:"10m" doc:"limit for one question, from beginning to end"`
	ConnectTimeout time.Duration `env:"VERIFICATION_CONNECT_TIMEOUT" envDefault:"5s" min:"10ms" max:"1m" doc:"limit for opening a connection, and again for its TLS handshake"`
	IdleTimeout    time.Duration `env:"VERIFICATION_IDLE_TIMEOUT" envDefault:"30s" min:"1s" max:"10m" doc:"an unused connection is closed after this time; keep it below that of the verifier"`
	AllowPrivate   bool          `env:"VERIFICATION_ALLOW_PRIVATE" envDefault:"false" doc:"verifiers may have a private or loopback address, and then http:// is allowed"`
	CAFile         string        `env:"VERIFICATION_CA_FILE" doc:"PEM file with further certificate authorities to trust"`
}

// Defaults is what the tags above describe.
func Defaults() Config {
	return Config{Timeout: 30 * time.Second, ConnectTimeout: 5 * time.Second, IdleTimeout: 30 * time.Second}
}

// Validate names every fault at once, each by its variable, none with a secret.
func (c Config) Validate() error {
	_, err := c.targets()
	return err
}

// Required is a fault when documents are to be verified and nobody is there to do
// it. inbound is document.Policy.Verification.
func (c Config) Required(inbound bool) error {
	if (inbound || c.Outbound) && len(c.Verifiers) == 0 {
		return errors.New("VERIFICATION_VERIFIERS: is empty although VERIFICATION_INBOUND_ENABLED or VERIFICATION_OUTBOUND_ENABLED is set")
	}
	return nil
}

// LongestAsk bounds one Ask, and so All, whatever the verifiers do.
func (c Config) LongestAsk() time.Duration {
	longest := c.Timeout
	targets, err := c.targets()
	if err != nil {
		return longest + time.Second
	}
	for _, t := range targets {
		longest = max(longest, t.timeout)
	}
	return longest + time.Second
}

// String names the verifiers and their hosts, without secrets.
func (c Config) String() string {
	targets, err := c.targets()
	if err != nil {
		return "verifiers"
	}
	var names []string
	for _, t := range targets {
		names = append(names, t.name+" at "+t.url.Scheme+"://"+t.url.Host)
	}
	return "verifiers " + strings.Join(names, ", ")
}

// GoString keeps the secrets out of %#v as well.
func (c Config) GoString() string { return c.String() }

// target is one verifier as configured.
type target struct {
	name    string
	url     *url.URL
	token   string
	timeout time.Duration
}

var (
	verifierName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
	bearerToken  = regexp.MustCompile(`^[A-Za-z0-9._~+/-]+=*$`) // RFC 6750, 2.1
)

// targets reads the lists. It is the whole check as well, so that what is used is
// what was checked.
func (c Config) targets() ([]target, error) {
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf(name+": "+format, args...))
	}
	var list []target
	index := map[string]int{}
	for i, item := range c.Verifiers {
		name, address, _ := strings.Cut(strings.TrimSpace(item), "=")
		u, err := url.Parse(address)
		_, twice := index[name]
		switch {
		case !verifierName.MatchString(name):
			fault("VERIFICATION_VERIFIERS", "item %d is not name=URL", i+1)
			continue
		case twice:
			fault("VERIFICATION_VERIFIERS", "%s stands twice", name)
			continue
		case err != nil || u.Hostname() == "" || u.Opaque != "": // its text may hold a password
			fault("VERIFICATION_VERIFIERS", "%s is not a URL such as https://verifier.example/validate", name)
			continue
		case u.User != nil:
			fault("VERIFICATION_VERIFIERS", "%s must not hold a user or password: use VERIFICATION_TOKENS", name)
		case u.Fragment != "":
			fault("VERIFICATION_VERIFIERS", "%s must not have a fragment (#)", name)
		case u.Scheme == "http" && !c.AllowPrivate:
			fault("VERIFICATION_VERIFIERS", "%s: http:// would send documents in plain text; use https://, or inside a private network set VERIFICATION_ALLOW_PRIVATE", name)
		case u.Scheme != "http" && u.Scheme != "https":
			fault("VERIFICATION_VERIFIERS", "%s: scheme %.16q is not https", name, u.Scheme)
		}
		index[name] = len(list)
		list = append(list, target{name: name, url: u, timeout: c.Timeout})
	}
	if len(c.Verifiers) > MaxVerifiers {
		fault("VERIFICATION_VERIFIERS", "names %d, at most %d", len(c.Verifiers), MaxVerifiers)
	}
	for i, item := range c.Tokens {
		name, token, _ := strings.Cut(strings.TrimSpace(item), "=")
		n, known := index[name]
		switch {
		case !known:
			fault("VERIFICATION_TOKENS", "item %d is not name=token of a verifier in VERIFICATION_VERIFIERS", i+1)
		case !bearerToken.MatchString(token):
			fault("VERIFICATION_TOKENS", "that of %s is empty or has characters that a bearer token must not have", name)
		default:
			list[n].token = token
		}
	}
	for i, item := range c.Timeouts {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		n, known := index[name]
		limit, err := time.ParseDuration(value)
		switch {
		case !known:
			fault("VERIFICATION_TIMEOUTS", "item %d is not name=duration of a verifier in VERIFICATION_VERIFIERS", i+1)
		case err != nil || limit <= 0 || limit > 10*time.Minute:
			fault("VERIFICATION_TIMEOUTS", "that of %s is no duration up to 10m, such as 45s", name)
		default:
			list[n].timeout = limit
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"VERIFICATION_TIMEOUT", c.Timeout},
		{"VERIFICATION_CONNECT_TIMEOUT", c.ConnectTimeout},
		{"VERIFICATION_IDLE_TIMEOUT", c.IdleTimeout},
	} {
		if d.value <= 0 {
			fault(d.name, "%s must be more than 0", d.value)
		}
	}
	if _, err := trust.Roots(c.CAFile); err != nil {
		fault("VERIFICATION_CA_FILE", "%w", err)
	}
	return list, errors.Join(faults...)
}
