package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// Config is everything the gateway can be told.
type Config struct {
	daemon.Settings

	Policy     document.Policy
	Duplicates docket.Duplicates

	Listen      string        `env:"GATEWAY_LISTEN" envDefault:"127.0.0.1:8080" doc:"Address of the operations API (host:port)."`
	TLSCert     string        `env:"GATEWAY_TLS_CERT" doc:"PEM file with the certificate of the operations API, and those between it and its root."`
	TLSKey      string        `env:"GATEWAY_TLS_KEY" doc:"PEM file with its private key."`
	AllowPlain  bool          `env:"GATEWAY_ALLOW_PLAIN" envDefault:"false" doc:"Listen without TLS also where others can hear: behind a proxy that has it."`
	Tokens      daemon.Secret `env:"GATEWAY_TOKENS" doc:"Who may ask: name:role[,role][@tenant]=hash, parted by semicolons. Roles are operator, backend, reader, publisher; hash is the SHA-256 of the token in hexadecimal. None: everything is refused."`
	MaxDocument int           `env:"GATEWAY_MAX_DOCUMENT_BYTES" envDefault:"10485760" min:"1024" max:"104857600" doc:"Largest document that is taken over HTTP, in bytes."`
	Concurrency int           `env:"GATEWAY_CONCURRENCY" envDefault:"32" min:"1" max:"1000" doc:"Requests in work at once; more are told to come again."`
}

// Validate finds combinations that are unsafe.
func (c Config) Validate() error {
	var faults []error
	host, _, err := net.SplitHostPort(c.Listen)
	switch {
	case err != nil:
		faults = append(faults, fmt.Errorf("GATEWAY_LISTEN: %.100q is not host:port", c.Listen))
	case c.TLSCert == "" && !c.AllowPlain && !loopback(host):
		faults = append(faults, errors.New("GATEWAY_LISTEN: others can reach this address and would hear the tokens; give GATEWAY_TLS_CERT and GATEWAY_TLS_KEY, or GATEWAY_ALLOW_PLAIN=true behind a proxy with TLS"))
	}
	if (c.TLSCert == "") != (c.TLSKey == "") {
		faults = append(faults, errors.New("GATEWAY_TLS_CERT: it needs GATEWAY_TLS_KEY, and the other way round"))
	}
	if _, err := ParseKeys(c.Tokens.Reveal()); err != nil {
		faults = append(faults, fmt.Errorf("GATEWAY_TOKENS: %w", err))
	}
	return errors.Join(faults...)
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
