package smtp

import (
	"encoding/base64"
	"errors"
	"strings"

	"github.com/emersion/go-sasl"
)

// authenticate proves who we are by the configured mechanism (RFC 4954). A
// refusal is a matter of the account, never of the message.
func (s *session) authenticate() *stop {
	if !s.secret() {
		return local(PhaseTLS, CodeNoTLS, errors.New("the connection is not encrypted: the password stays here"))
	}
	client := s.mechanism()
	if client == nil {
		return local(PhaseAuth, CodeNoAuth, errors.New("the server offers no mechanism of MAIL_SERVER_AUTH="+s.cfg.Auth))
	}
	name, initial, err := client.Start()
	if err != nil {
		return local(PhaseAuth, CodeNoAuth, err)
	}
	rep, st := s.command(PhaseAuth, "AUTH "+name+" "+base64.StdEncoding.EncodeToString(initial))
	for range 3 { // no mechanism here takes more rounds
		if st != nil {
			return st
		}
		if rep.code != 334 {
			break
		}
		line := "*" // takes the attempt back
		if challenge, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rep.text())); err == nil {
			if answer, err := client.Next(challenge); err == nil {
				line = base64.StdEncoding.EncodeToString(answer)
			}
		}
		rep, st = s.command(PhaseAuth, line)
	}
	if st != nil {
		return st
	}
	if !rep.positive() {
		return s.refused(PhaseAuth, rep)
	}
	return nil
}

// mechanism picks what is configured and offered; nil when there is none.
func (s *session) mechanism() sasl.Client {
	offered := strings.Fields(s.ext["AUTH"])
	has := func(name string) bool {
		for _, o := range offered {
			if o == name {
				return true
			}
		}
		return false
	}
	want := s.cfg.Auth
	switch {
	case (want == "auto" || want == "plain") && has("PLAIN"):
		return sasl.NewPlainClient("", s.cfg.Username, s.cfg.Password)
	case (want == "auto" || want == "login") && has("LOGIN"):
		return sasl.NewLoginClient(s.cfg.Username, s.cfg.Password)
	case want == "xoauth2" && has("XOAUTH2"):
		return xoauth2{user: s.cfg.Username, token: s.cfg.Password}
	}
	return nil
}

// xoauth2 is the bearer token mechanism of the large mail providers; the password
// of the account is the access token.
type xoauth2 struct{ user, token string }

func (x xoauth2) Start() (string, []byte, error) {
	return "XOAUTH2", []byte("user=" + x.user + "\x01auth=Bearer " + x.token + "\x01\x01"), nil
}

// Next answers the provider's description of an error, after which it refuses.
func (x xoauth2) Next([]byte) ([]byte, error) { return []byte{}, nil }

// scrubber removes the secret, in each form that we send it in, from a text.
func scrubber(c Config) *strings.Replacer {
	if c.Password == "" {
		return strings.NewReplacer()
	}
	_, bearer, _ := xoauth2{user: c.Username, token: c.Password}.Start()
	var pairs []string
	for _, secret := range []string{
		base64.StdEncoding.EncodeToString(bearer),
		base64.StdEncoding.EncodeToString([]byte("\x00" + c.Username + "\x00" + c.Password)),
		base64.StdEncoding.EncodeToString([]byte(c.Password)),
		c.Password,
	} {
		pairs = append(pairs, secret, "[redacted]")
	}
	return strings.NewReplacer(pairs...)
}
