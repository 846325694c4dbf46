package gateway

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/clerk"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
)

// lastWrite is how long events may still be published after working has ended.
const lastWrite = 1500 * time.Millisecond

// Run is the life of one gateway.
func Run(ctx context.Context, cfg Config) error {
	keys, err := ParseKeys(cfg.Tokens.Reveal())
	if err != nil {
		return fmt.Errorf("GATEWAY_TOKENS: %w", err)
	}
	return daemon.Run(ctx, "gateway", cfg.Settings, func(taking, working context.Context, p *daemon.Process) error {
		return run(taking, working, p, cfg, keys)
	})
}

func run(taking, working context.Context, p *daemon.Process, cfg Config, keys Keys) error {
	publisher, err := bus.NewPublisher(p.NATS, bus.DefaultAckTimeout)
	if err != nil {
		return err
	}
	book := ledger.New(p.DB)
	docs, err := docket.Open(taking, p.DB, book, &cfg.Policy)
	if err != nil {
		return err
	}
	relay := outbox.NewRelay(outbox.Config{DB: p.DB, Publisher: outbox.JetStream{Bus: publisher}, Log: p.Log})
	d := &desk{docs: docs, book: book, lanes: lane.New(p.DB, relay.Hand), policy: &cfg.Policy, modes: cfg.Duplicates,
		clerk: &clerk.Clerk{Docs: docs, Hand: relay.Hand, Ready: bell(p.NATS, p.Instance)}, largest: cfg.MaxDocument, log: p.Log}
	api, err := d.handler()
	if err != nil {
		return err
	}
	listener, err := listen(taking, cfg)
	if err != nil {
		return err
	}
	if len(keys) == 0 {
		p.Log.Warn().Msg("GATEWAY_TOKENS is empty: every request is refused")
	}
	p.Log.Info().Stringer("api", listener.Addr()).Bool("tls", cfg.TLSCert != "").Int("tokens", len(keys)).Msg("listening")

	storing, endStoring := daemon.Outlive(working, lastWrite)
	defer endStoring()
	published, endRelay := context.WithCancel(context.WithoutCancel(storing))
	defer endRelay()
	var support errgroup.Group
	support.Go(func() error { return relay.Run(published, storing) })
	server := newServer(&door{keys: keys, slots: make(chan struct{}, cfg.Concurrency), log: p.Log, next: api}, p.Log)
	err = serve(taking, working, server, listener)
	endRelay()
	if e := support.Wait(); err == nil {
		err = e
	}
	return err
}

// listen opens the address, with TLS when there is a certificate.
func listen(ctx context.Context, cfg Config) (net.Listener, error) {
	var secure *tls.Config
	if cfg.TLSCert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.TLSCert, cfg.TLSKey)
		if err != nil {
			return nil, fmt.Errorf("GATEWAY_TLS_CERT: %w", err)
		}
		secure = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("GATEWAY_LISTEN: %w", err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	return l, nil
}

// serve answers until taking ends, then lets requests in hand end until working does.
func serve(taking, working context.Context, server *http.Server, l net.Listener) error {
	server.BaseContext = func(net.Listener) context.Context { return working }
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	var err error
	select {
	case err = <-served:
	case <-taking.Done():
		if server.Shutdown(working) != nil {
			_ = server.Close()
		}
		err = <-served
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the operations API: %w", err)
}

// bell tells workers of what is ready.
func bell(nc *nats.Conn, instance string) func(docket.Moved) {
	return func(m docket.Moved) {
		_ = bus.Ring(nc, m.Kind, claim.Bell{From: instance, Groups: []claim.Group{m.Group}}) // nobody need hear it
	}
}
