package housetest

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
)

// Options of a Site; the zero value takes a database of the shared cluster, a
// NATS server of its own and a mail server that accepts all.
type Options struct {
	DatabaseURL string // empty: localtest.Postgres
	NATSURL     string // empty: localtest.NATS
	Sink        smtpsink.Options
	Env         map[string]string // settings of every service, beside those of Site
}

// Site is what the services of one test share. Its own connections only look.
type Site struct {
	T    *testing.T
	Sink *smtpsink.Sink
	DB   *pgxpool.Pool
	NATS *nats.Conn
	JS   jetstream.JetStream

	DatabaseURL, NATSURL string
	env                  map[string]string
}

// New sets a site up and leaves its end to the test's cleanup.
func New(t *testing.T, o Options) *Site {
	t.Helper()
	s := &Site{T: t, DatabaseURL: o.DatabaseURL, NATSURL: o.NATSURL}
	if s.DatabaseURL == "" {
		s.DatabaseURL = localtest.Postgres(t)
	}
	if s.NATSURL == "" {
		s.NATSURL = localtest.NATS(t)
	}
	if o.Sink.MaxEntries == 0 {
		o.Sink.MaxEntries = 100_000
	}
	var err error
	if s.Sink, err = smtpsink.Start(o.Sink); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Sink.Close() })
	cfg, err := pgxpool.ParseConfig(s.DatabaseURL)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns, cfg.MinConns = 2, 0
	if s.DB, err = pgxpool.NewWithConfig(context.Background(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.DB.Close)
	if s.NATS, err = nats.Connect(s.NATSURL, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectBufSize(-1)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.NATS.Close)
	if s.JS, err = jetstream.New(s.NATS, jetstream.WithDefaultTimeout(20*time.Second), jetstream.WithPublishAsyncMaxPending(512)); err != nil {
		t.Fatal(err)
	}
	s.env = map[string]string{
		"DATABASE_URL": s.DatabaseURL, "DATABASE_MAX_CONNS": "6", "NATS_URL": s.NATSURL, "HEALTH_LISTEN": "", "LOG_LEVEL": "info",
		"MAIL_SERVER_HOST": s.Sink.Host(), "MAIL_SERVER_PORT": strconv.Itoa(s.Sink.Port()), "MAIL_SERVER_TLS": "none",
		"MAIL_SERVER_FROM_ADDRESS": "post@house.example", "MAIL_SERVER_MAX_CONNECTIONS": "24", "MAIL_SEND_CONCURRENCY": "24",
		"CIRCUIT_BREAKER_FAILURE_THRESHOLD": "100000", // a test of breakers says what it wants
		"RETRY_MAIL_INITIAL_BACKOFF":        "50ms", "RETRY_MAIL_MAX_BACKOFF": "500ms", "RETRY_MAIL_QUOTA_FLOOR": "100ms",
		"SENDER_POLL": "100ms", "SENDER_IDLE_POLL": "500ms",
	}
	maps.Copy(s.env, o.Env)
	return s
}

// Environ is the environment of one service, as os.Environ gives it.
func (s *Site) Environ(extra map[string]string) []string {
	all := maps.Clone(s.env)
	maps.Copy(all, extra)
	lines := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		lines = append(lines, name+"="+all[name])
	}
	return lines
}

// Count is one number that the database gives.
func (s *Site) Count(sql string, args ...any) (n int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err = s.DB.QueryRow(ctx, sql, args...).Scan(&n)
	return n, err
}
