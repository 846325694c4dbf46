package main

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/pkg/client"
)

// server says which NATS server a command talks to. The variables are those of
// the services, so one environment serves both.
type server struct {
	NATSURL      string `name:"nats-url" env:"NATS_URL" default:"nats://127.0.0.1:4222" help:"NATS server."`
	NATSUser     string `name:"nats-user" env:"NATS_USER" help:"NATS user."`
	NATSPassword string `name:"nats-password" env:"NATS_PASSWORD" help:"NATS password; better in the environment."`
	NATSCreds    string `name:"nats-creds" env:"NATS_CREDS_FILE" type:"path" help:"NATS credentials file."`
	NATSCA       string `name:"nats-ca" env:"NATS_CA_FILE" type:"path" help:"PEM file with certificate authorities to trust."`
	NATSDomain   string `name:"nats-domain" env:"NATS_JS_DOMAIN" help:"JetStream domain of the streams, where the user's account does not hold them; posthouse for the shipped operator and reader."`
	NATSInbox    string `name:"nats-inbox-prefix" env:"NATS_INBOX_PREFIX" help:"Prefix of the inbox, where the user may subscribe to no other."`
}

// connect opens the connection; the caller closes it.
func (s server) connect(more ...nats.Option) (*nats.Conn, error) {
	opts := []nats.Option{nats.Name("posthouse command line"), nats.Timeout(3 * time.Second)}
	if s.NATSUser != "" {
		opts = append(opts, nats.UserInfo(s.NATSUser, s.NATSPassword))
	}
	if s.NATSCreds != "" {
		opts = append(opts, nats.UserCredentials(s.NATSCreds))
	}
	if s.NATSCA != "" {
		opts = append(opts, nats.RootCAs(s.NATSCA))
	}
	if s.NATSInbox != "" {
		opts = append(opts, nats.CustomInboxPrefix(s.NATSInbox))
	}
	nc, err := nats.Connect(s.NATSURL, append(opts, more...)...)
	if err != nil {
		return nil, fmt.Errorf("NATS at %s: %w (is it running? `posthouse up` starts everything; NATS_URL names another server)", s.NATSURL, err)
	}
	return nc, nil
}

// with connects, runs do and closes.
func (s server) with(do func(*client.Client) error) error {
	var refused atomic.Pointer[error]
	nc, err := s.connect(nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused.Store(&err) }))
	if err != nil {
		return err
	}
	defer nc.Close()
	c, err := client.New(nc, s.NATSDomain)
	if err != nil {
		return err
	}
	err = do(c)
	if said := refused.Load(); err != nil && said != nil { // what the server refuses, it says apart from the request
		return fmt.Errorf("%w: the NATS server says: %w", err, *said)
	}
	return err
}
