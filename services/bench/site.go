package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/local/child"
	"github.com/posthouse-io/posthouse/pkg/transport"
	"github.com/posthouse-io/posthouse/services/sender"
	"github.com/posthouse-io/posthouse/streams"
)

// slots is how many deliveries the measured sender has in work: the transport
// takes no time, so it has to be as many as a settlement and a claim take.
const slots = 1000

// ground says what a site starts from.
type ground struct {
	template string // database to begin with; empty: the blank one
	natsDir  string // streams to begin with; empty: none
	lazySync bool   // NATS with its default sync interval instead of always
}

// site is a fresh database and a NATS process for one measurement.
type site struct {
	servers  *servers
	database string
	url      string // of the database
	natsURL  string
	nats     *child.Process
	natsDir  string
	ownDir   bool
	db       *pgxpool.Pool
	nc       *nats.Conn
	js       jetstream.JetStream
	book     *ledger.Ledger
	lane     int32 // that the sender's requests go to
}

// on runs a measurement on a site and clears the site away.
func (s *servers) on(ctx context.Context, g ground, measure func(context.Context, *site) error) error {
	at, err := s.open(ctx, g)
	if err == nil {
		err = measure(ctx, at)
	}
	return errors.Join(err, at.close(ctx))
}

func (s *servers) open(ctx context.Context, g ground) (at *site, err error) {
	at = &site{servers: s, natsDir: g.natsDir}
	if g.template == "" {
		g.template = blank
	}
	if at.database, err = s.clone(ctx, g.template); err != nil {
		return at, err
	}
	at.url = s.postgres.URL(at.database)
	if at.db, err = pgxpool.New(ctx, at.url); err != nil {
		return at, fmt.Errorf("connect: %w", err)
	}
	at.book = ledger.New(at.db)
	if at.lane, err = at.book.Lane(ctx, lane("bench"), string(streams.KindDelivery)); err != nil {
		return at, err
	}
	if at.natsDir == "" {
		at.natsDir, at.ownDir = filepath.Join(s.dir, s.name()), true
	}
	if at.nats, at.natsURL, err = startNATS(ctx, s.program, natsOrder{Dir: at.natsDir, SyncAlways: !g.lazySync}, s.log); err != nil {
		return at, err
	}
	if at.nc, err = nats.Connect(at.natsURL); err != nil {
		return at, fmt.Errorf("connect to NATS: %w", err)
	}
	if at.js, err = jetstream.New(at.nc, jetstream.WithPublishAsyncMaxPending(8192)); err != nil {
		return at, fmt.Errorf("jetstream: %w", err)
	}
	return at, at.streams(ctx)
}

// streams makes the streams. Requests may be there from before; what an earlier
// measurement made of them goes.
func (at *site) streams(ctx context.Context) error {
	for _, name := range []string{streams.Events, streams.DeadLetter, streams.Advisories} {
		if err := at.js.DeleteStream(ctx, name); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return fmt.Errorf("clear stream %s: %w", name, err)
		}
	}
	err := at.js.DeleteConsumer(ctx, streams.Requests, "sender")
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) && !errors.Is(err, jetstream.ErrConsumerNotFound) {
		return fmt.Errorf("clear consumer: %w", err)
	}
	_, err = streams.Apply(ctx, at.js, streams.Options{MaxBytes: 4 << 30})
	return err
}

func (at *site) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopServers)
	defer cancel()
	var errs []error
	if at.nc != nil {
		at.nc.Close()
	}
	if at.nats != nil {
		_ = at.nats.Term(15 * time.Second) // one that had to be killed has told why in the log
	}
	if at.ownDir {
		errs = append(errs, os.RemoveAll(at.natsDir))
	}
	if at.db != nil {
		at.db.Close()
	}
	if at.database != "" {
		errs = append(errs, at.servers.drop(ctx, at.database))
	}
	return errors.Join(errs...)
}

// lane is the key that the sender gives to a mail server.
func lane(host string) string { return "mail$" + host + ":25" }

// settings are the sender's, as shipped but for its slots.
func senderConfig(databaseURL, natsURL string, lease time.Duration) (sender.Config, error) {
	environ := []string{"DATABASE_URL=" + databaseURL, "NATS_URL=" + natsURL, "HEALTH_LISTEN=",
		"MAIL_SERVER_HOST=bench", "MAIL_SERVER_PORT=25", "MAIL_SERVER_TLS=none", "MAIL_SERVER_FROM_ADDRESS=bench@example.test"}
	if lease > 0 {
		environ = append(environ, "SENDER_LEASE="+lease.String())
	}
	cfg, _, err := daemon.Load[sender.Config](environ, nil)
	cfg.Slots, cfg.MailConcurrency = slots, slots
	return cfg, err
}

// sending runs a sender while during runs. It returns the first error of the two.
func (at *site) sending(ctx context.Context, way transport.Transport, during func(context.Context) error, tune ...func(*sender.Config)) error {
	cfg, err := senderConfig(at.url, at.natsURL, 0)
	if err != nil {
		return err
	}
	cfg.LogTo = at.servers.log
	for _, t := range tune {
		t(&cfg)
	}
	return alongside(ctx, func(ctx context.Context) error { return sender.RunWith(ctx, cfg, way) }, during)
}

// alongside runs a service while during runs, and stops it then.
func alongside(ctx context.Context, service, during func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	running, stop := context.WithCancel(ctx)
	defer stop()
	group.Go(func() error {
		err := service(running)
		if err == nil && running.Err() == nil {
			err = errors.New("the service ended by itself: see the log")
		}
		return err
	})
	group.Go(func() error {
		defer stop()
		return during(ctx)
	})
	return group.Wait()
}

// published is how many events the stream holds.
func (at *site) published(ctx context.Context) (int, error) {
	s, err := at.js.Stream(ctx, streams.Events)
	if err != nil {
		return 0, fmt.Errorf("events: %w", err)
	}
	return int(s.CachedInfo().State.Msgs), nil
}

// drained returns when n events are in the stream and the outbox is empty.
func (at *site) drained(ctx context.Context, n int) error {
	err := until(ctx, 5*time.Millisecond, func() (bool, error) {
		have, err := at.published(ctx)
		return have >= n, err
	})
	if err != nil {
		return err
	}
	return until(ctx, 5*time.Millisecond, func() (empty bool, err error) {
		err = at.db.QueryRow(ctx, "SELECT NOT EXISTS (SELECT FROM outbox)").Scan(&empty)
		return empty, err
	})
}

// until asks again and again until the answer is yes.
func until(ctx context.Context, every time.Duration, ask func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		yes, err := ask()
		if err != nil || yes {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// wait lets time pass.
func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
