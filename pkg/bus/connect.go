package bus

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
)

// Connect returns a connection that lives until the caller closes it. When no
// server answers yet it returns all the same and goes on trying for ever, also
// when the server refuses the credentials (they may be fixed there): nc.Status
// and nc.IsConnected tell. ctx bounds the start only. While disconnected a
// publish fails at once instead of piling up in memory.
func Connect(ctx context.Context, cfg Config, name string, log zerolog.Logger) (*nats.Conn, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("nats configuration: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("nats connect: %w", err)
	}
	log = log.With().Str("room", "bus").Logger()
	opts := []nats.Option{
		nats.Name(name),
		nats.Timeout(5 * time.Second),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.CustomReconnectDelay(reconnectDelay),
		nats.PingInterval(20 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1),
		nats.DrainTimeout(10 * time.Second),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil when we closed it ourselves
				log.Warn().Err(err).Msg("nats disconnected")
			}
		}),
		nats.ConnectHandler(func(nc *nats.Conn) {
			log.Info().Str("server", nc.ConnectedAddr()).Msg("nats connected")
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info().Str("server", nc.ConnectedAddr()).Msg("nats reconnected")
		}),
		nats.ReconnectErrHandler(oncePerText(func(err error) {
			log.Warn().Err(err).Msg("nats does not answer, trying on")
		})),
		nats.ClosedHandler(func(*nats.Conn) { log.Info().Msg("nats connection closed") }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			e := log.Warn().Err(err)
			if sub != nil {
				e = e.Str("subject", sub.Subject)
			}
			e.Msg("nats reports")
		}),
	}
	if cfg.User != "" {
		opts = append(opts, nats.UserInfo(cfg.User, cfg.Password))
	}
	if cfg.CredsFile != "" {
		opts = append(opts, nats.UserCredentials(cfg.CredsFile))
	}
	if cfg.CAFile != "" {
		opts = append(opts, nats.RootCAs(cfg.CAFile))
	}
	if cfg.CertFile != "" {
		opts = append(opts, nats.ClientCert(cfg.CertFile, cfg.KeyFile))
	}
	if cfg.InboxPrefix != "" {
		opts = append(opts, nats.CustomInboxPrefix(cfg.InboxPrefix))
	}
	nc, err := nats.Connect(cfg.URL, opts...)
	if err != nil {
		return nil, fmt.Errorf("nats connect: %w", err)
	}
	return nc, nil
}

// reconnectDelay is short the first time, since most losses are a server that
// restarts elsewhere, and spread over a second from then on, since all clients
// lose their server at the same moment.
func reconnectDelay(attempts int) time.Duration {
	if attempts <= 1 {
		return 50*time.Millisecond + rand.N(200*time.Millisecond)
	}
	return time.Second + rand.N(time.Second)
}

// oncePerText passes an error on when it differs from the one before: a server
// that is away for a night makes one line. nats.go calls it from one goroutine.
func oncePerText(tell func(error)) nats.ConnErrHandler {
	var last string
	return func(_ *nats.Conn, err error) {
		if err == nil || err.Error() == last {
			return
		}
		last = err.Error()
		tell(err)
	}
}

// connected waits until the connection is up. Its error is ctx's, or
// nats.ErrConnectionClosed when there will be no connection any more.
func connected(ctx context.Context, nc *nats.Conn) error {
	changed := nc.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer nc.RemoveStatusListener(changed)
	for {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case nc.IsClosed():
			return nats.ErrConnectionClosed
		case nc.IsConnected():
			return nil
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}
