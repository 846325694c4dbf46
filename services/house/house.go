// Package house runs all of Posthouse in one process: a private PostgreSQL, an
// embedded NATS server with JetStream on disk, and every service, exactly the
// Run functions that run alone elsewhere. It serves `posthouse up`, `posthouse
// demo` and the end-to-end tests.
//
// It decides where the data lie and in which order things start and stop:
// servers, schema, streams, services; and back. With DATABASE_URL or NATS_URL
// given it uses those servers instead of its own. Run owns everything it starts
// and returns when all of it has ended.
package house

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/posthouse-io/posthouse/migrations"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/local"
	deadletter "github.com/posthouse-io/posthouse/services/dead-letter"
	"github.com/posthouse-io/posthouse/services/forwarder"
	"github.com/posthouse-io/posthouse/services/sender"
	"github.com/posthouse-io/posthouse/services/settings"
	verifierretry "github.com/posthouse-io/posthouse/services/verifier-retry"
	"github.com/posthouse-io/posthouse/services/watchdog"
	"github.com/posthouse-io/posthouse/streams"
)

const (
	database    = "posthouse"
	stopServers = 20 * time.Second
)

// Options say where the house stands.
type Options struct {
	Dir          string            // data of the private servers; kept
	PostgresPort int               // 0 = a free one
	NATSPort     int               // 0 = a free one
	Environ      map[string]string // settings of the services; DATABASE_URL and NATS_URL name servers to use instead of private ones
	LogTo        io.Writer         // log of the services; nil = standard error
	Log          zerolog.Logger    // log of the servers
}

// House is a running one.
type House struct {
	DatabaseURL string
	NATSURL     string
	Migrated    []migrations.Applied
	Streams     streams.Report
}

// Run starts everything, calls ready when the services are being started, and
// returns when ctx has ended and all is stopped, or when something fails for good.
func Run(ctx context.Context, o Options, ready func(House)) (err error) {
	// The settings are checked before anything is started or connected to.
	if _, err := load(o, House{DatabaseURL: cmp.Or(o.Environ["DATABASE_URL"], "postgres://private/posthouse"), NATSURL: cmp.Or(o.Environ["NATS_URL"], "nats://private")}); err != nil {
		return err
	}
	var h House
	servers := &servers{log: o.Log}
	defer func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopServers)
		defer cancel()
		err = errors.Join(err, servers.stop(last))
	}()
	if err := servers.start(ctx, o, &h); err != nil {
		return err
	}
	if h.Migrated, err = migrations.Up(ctx, h.DatabaseURL); err != nil {
		return err
	}
	if h.Streams, err = applyStreams(ctx, h.NATSURL, o.Environ); err != nil {
		return err
	}
	services, err := load(o, h)
	if err != nil {
		return err
	}
	ready(h)
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range services {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

// servers are the private ones, in order of start.
type servers struct {
	log      zerolog.Logger
	postgres *local.Postgres
	nats     *local.NATS
}

func (s *servers) start(ctx context.Context, o Options, h *House) (err error) {
	if h.DatabaseURL = o.Environ["DATABASE_URL"]; h.DatabaseURL == "" {
		if err := os.MkdirAll(o.Dir, 0o755); err != nil {
			return fmt.Errorf("data folder: %w", err)
		}
		s.postgres, err = local.StartPostgres(ctx, local.PostgresConfig{Dir: filepath.Join(o.Dir, "postgres"), Port: o.PostgresPort, Durable: true, Log: s.log,
			Settings: map[string]string{"max_connections": "200"}})
		if err != nil {
			return err
		}
		if err := s.postgres.CreateDatabase(ctx, database); err != nil {
			return err
		}
		h.DatabaseURL = s.postgres.URL(database)
	}
	if h.NATSURL = o.Environ["NATS_URL"]; h.NATSURL == "" {
		s.nats, err = local.StartNATS(ctx, local.NATSConfig{Dir: filepath.Join(o.Dir, "nats"), Port: o.NATSPort, SyncAlways: true, Log: s.log})
		if err != nil {
			return err
		}
		h.NATSURL = s.nats.URL()
	}
	return nil
}

func (s *servers) stop(ctx context.Context) error {
	var errs []error
	if s.nats != nil {
		errs = append(errs, s.nats.Stop(ctx))
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop(ctx))
	}
	return errors.Join(errs...)
}

// applyStreams makes the streams, small unless told otherwise: one machine's
// disk is shared with other things.
func applyStreams(ctx context.Context, url string, environ map[string]string) (streams.Report, error) {
	o, _, err := daemon.Load[streams.Options](lines(environ), settings.Names())
	if err != nil {
		return nil, err
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 2 << 30
	}
	nc, err := nats.Connect(url, nats.UserInfo(environ["NATS_USER"], environ["NATS_PASSWORD"]))
	if err != nil {
		why := ""
		if environ["NATS_URL"] != "" {
			why = " (NATS_URL is set, so no private server was started)"
		}
		return nil, fmt.Errorf("apply streams: NATS at %s: %w%s", url, err, why)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, fmt.Errorf("apply streams: %w", err)
	}
	return streams.Apply(ctx, js, o)
}

// load configures every service from one environment, all faults at once. Documents
// are received only when it is said where they go.
func load(o Options, h House) ([]func(context.Context) error, error) {
	environ := maps.Clone(o.Environ)
	if environ == nil {
		environ = make(map[string]string)
	}
	environ["DATABASE_URL"], environ["NATS_URL"] = h.DatabaseURL, h.NATSURL
	send, _, e1 := daemon.Load[sender.Config](lines(environ), settings.Names())
	environ["HEALTH_LISTEN"] = "" // one address, one listener: the sender's
	watch, _, e2 := daemon.Load[watchdog.Config](lines(environ), settings.Names())
	dead, _, e3 := daemon.Load[deadletter.Config](lines(environ), settings.Names())
	var inbound forwarder.Config
	var again verifierretry.Config
	var e4, e5 error
	receives := environ["FORWARDING_MODE"] != "" && environ["FORWARDING_MODE"] != "none"
	if receives {
		inbound, _, e4 = daemon.Load[forwarder.Config](lines(environ), settings.Names())
		again, _, e5 = daemon.Load[verifierretry.Config](lines(environ), settings.Names())
	}
	if err := firstFault(e1, e2, e3, e4, e5); err != nil {
		return nil, err
	}
	send.LogTo, watch.LogTo, dead.LogTo, inbound.LogTo, again.LogTo = o.LogTo, o.LogTo, o.LogTo, o.LogTo, o.LogTo
	all := []func(context.Context) error{
		func(ctx context.Context) error { return sender.Run(ctx, send) },
		func(ctx context.Context) error { return watchdog.Run(ctx, watch) },
		func(ctx context.Context) error { return deadletter.Run(ctx, dead) },
	}
	if receives {
		all = append(all, func(ctx context.Context) error { return forwarder.Run(ctx, inbound) },
			func(ctx context.Context) error { return verifierretry.Run(ctx, again) })
	}
	return all, nil
}

// firstFault joins the faults of several configurations, each once.
func firstFault(errs ...error) error {
	var all daemon.Faults
	for _, err := range errs {
		var faults daemon.Faults
		switch {
		case err == nil:
		case errors.As(err, &faults):
			for _, f := range faults {
				if !slices.Contains(all, f) {
					all = append(all, f)
				}
			}
		default:
			return err
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all
}

func lines(environ map[string]string) []string {
	out := make([]string, 0, len(environ))
	for _, name := range slices.Sorted(maps.Keys(environ)) {
		out = append(out, name+"="+environ[name])
	}
	return out
}
