package chaos

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/migrations"
	"github.com/posthouse-io/posthouse/pkg/local"
	"github.com/posthouse-io/posthouse/pkg/local/child"
	"github.com/posthouse-io/posthouse/streams"
)

// Config says what a site is made of.
type Config struct {
	Parent string   // folder in which the site makes its own; others must be able to enter it; empty: the system's
	Bin    string   // folder of the built programs
	Self   []string // this program, for the parts it plays itself; empty: os.Executable
	Keep   bool     // the folder stays after Close

	Senders     int               // 0: 1
	Env         map[string]string // settings of every service beside those of the site
	SinkDelay   time.Duration     // of the mail server, before each acceptance
	PostgresDir string            // empty: below the site's folder
	NATSDir     string            // the same
	Durable     bool              // PostgreSQL with fsync, for faults of the disk
	MaxStore    int64             // of NATS, in bytes; 0: the server's own bound
	StreamBytes int64             // of all streams together; 0: 1 GiB
	Schema      int64             // migrate only so far; 0: to the newest
	earlier     string            // folder of programs that the services begin with; empty: Bin
	Say         func(format string, args ...any)
}

// Site is everything that one run needs. Faults are injected by its methods and
// those of its parts.
type Site struct {
	Dir      string
	Postgres *local.Postgres
	DB       *pgxpool.Pool // only looks
	NATS     *nats.Conn    // only looks
	JS       jetstream.JetStream
	Mail     *Proxy // between all senders and the mail server: its address is their lane
	Services []*Service

	cfg                  Config
	env                  map[string]string
	databaseURL, natsURL string
	natsDir              string
	log                  *os.File // of PostgreSQL's keeper and our own parts
	nats, sink           *child.Process
	sinkAddr             string
	sinkFiles            []string
	sampler              sampler

	mu     sync.Mutex
	faults []string
}

const database = "chaos"

// Open starts everything. After an error nothing is left.
func Open(ctx context.Context, cfg Config) (s *Site, err error) {
	s = &Site{cfg: cfg}
	if s.cfg.Say == nil {
		s.cfg.Say = func(string, ...any) {}
	}
	if len(cfg.Self) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("site: %w", err)
		}
		s.cfg.Self = []string{self}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(ctx))
		}
	}()
	if s.Dir, err = os.MkdirTemp(cfg.Parent, "posthouse-chaos-"); err != nil {
		return s, fmt.Errorf("site: %w", err)
	}
	if err = os.Chmod(s.Dir, 0o755); err != nil { // the account of PostgreSQL must enter it
		return s, fmt.Errorf("site: %w", err)
	}
	if s.log, err = os.Create(filepath.Join(s.Dir, "servers.log")); err != nil {
		return s, fmt.Errorf("site: %w", err)
	}
	for _, start := range []func(context.Context) error{s.startPostgres, s.startNATS, s.startMail, s.startServices, s.ready} {
		if err = start(ctx); err != nil {
			return s, fmt.Errorf("site: %w", err)
		}
	}
	s.sampler.run(s)
	return s, nil
}

func (s *Site) startPostgres(ctx context.Context) (err error) {
	dir := s.cfg.PostgresDir
	if dir == "" {
		dir = filepath.Join(s.Dir, "postgres")
	}
	cfg := local.PostgresConfig{Dir: dir, Durable: s.cfg.Durable, Log: zerolog.New(s.log), Settings: map[string]string{"track_activities": "on"}}
	if s.cfg.Durable {
		cfg.Settings["shared_buffers"], cfg.Settings["min_wal_size"], cfg.Settings["max_wal_size"] = "32MB", "32MB", "96MB"
	}
	if s.Postgres, err = local.StartPostgres(ctx, cfg); err != nil {
		return err
	}
	if err = s.Postgres.CreateDatabase(ctx, database); err != nil {
		return err
	}
	s.databaseURL = s.Postgres.URL(database)
	schema := s.cfg.Schema
	if schema == 0 {
		schema = migrations.Newest()
	}
	if _, err = migrations.UpTo(ctx, s.databaseURL, schema); err != nil {
		return err
	}
	pool, err := pgxpool.ParseConfig(s.databaseURL)
	if err != nil {
		return errors.New("the database has no address")
	}
	pool.MaxConns, pool.MinConns = 2, 0
	s.DB, err = pgxpool.NewWithConfig(ctx, pool)
	return err
}

func (s *Site) startNATS(ctx context.Context) (err error) {
	if s.natsDir = s.cfg.NATSDir; s.natsDir == "" {
		s.natsDir = filepath.Join(s.Dir, "nats")
	}
	if err = s.runNATS(ctx, 0); err != nil {
		return err
	}
	if s.NATS, err = nats.Connect(s.natsURL, nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond), nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1)); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	if s.JS, err = jetstream.New(s.NATS, jetstream.WithDefaultTimeout(20*time.Second)); err != nil {
		return fmt.Errorf("jetstream: %w", err)
	}
	return s.ApplyStreams(ctx)
}

func (s *Site) runNATS(ctx context.Context, port int) (err error) {
	s.nats, s.natsURL, err = startPart(ctx, s.cfg.Self, PartNATS, natsOrder{Dir: s.natsDir, Port: port, MaxStore: s.cfg.MaxStore}, s.log)
	return err
}

// ApplyStreams makes the streams that are missing.
func (s *Site) ApplyStreams(ctx context.Context) error {
	most := s.cfg.StreamBytes
	if most == 0 {
		most = 1 << 30
	}
	_, err := streams.Apply(ctx, s.JS, streams.Options{MaxBytes: most})
	return err
}

func (s *Site) startMail(ctx context.Context) (err error) {
	if err = s.runSink(ctx, ""); err != nil {
		return err
	}
	s.Mail, err = newProxy("mail server", s.sinkAddr, smtpWire)
	return err
}

// runSink starts the mail server on a ledger of its own: a line that a crash has
// torn is the last of its file.
func (s *Site) runSink(ctx context.Context, addr string) (err error) {
	file := filepath.Join(s.Dir, fmt.Sprintf("sink-%d.jsonl", len(s.sinkFiles)+1))
	s.sinkFiles = append(s.sinkFiles, file)
	s.sink, s.sinkAddr, err = startPart(ctx, s.cfg.Self, PartSink, sinkOrder{Addr: addr, File: file, Delay: s.cfg.SinkDelay}, s.log)
	return err
}

func (s *Site) startServices(context.Context) error {
	host, port, err := net.SplitHostPort(s.Mail.Addr())
	if err != nil {
		return err
	}
	s.env = map[string]string{
		"DATABASE_MAX_CONNS": "6", "HEALTH_LISTEN": "", "LOG_LEVEL": "debug", "SHUTDOWN_TIMEOUT": shutdownTimeout.String(),
		"MAIL_SERVER_HOST": host, "MAIL_SERVER_PORT": port, "MAIL_SERVER_TLS": "none", "MAIL_SERVER_FROM_ADDRESS": "post@house.example",
		"MAIL_SERVER_MAX_CONNECTIONS": "16", "MAIL_SEND_CONCURRENCY": "16",
		"RETRY_MAIL_INITIAL_BACKOFF": "100ms", "RETRY_MAIL_MAX_BACKOFF": "1s", "RETRY_MAIL_QUOTA_FLOOR": "200ms", "RETRY_MAIL_MAX_RETRIES": "60",
		"SENDER_POLL": "100ms", "SENDER_IDLE_POLL": "500ms", "SENDER_LEASE": lease.String(), "WATCHDOG_SWEEP": "1s", "WATCHDOG_POISON_LIMIT": "100",
		"CIRCUIT_BREAKER_OPEN_DURATION": "1s", "RETRY_SCHEDULER_INTERVAL": "500ms",
	}
	maps.Copy(s.env, s.cfg.Env)
	for _, p := range []struct { // in one order: the draws of a seed depend on it
		program string
		n       int
	}{{Sender, max(1, s.cfg.Senders)}, {Watchdog, 1}, {DeadLetter, 1}} {
		for i := range p.n {
			v, err := s.newService(p.program, i+1)
			if err != nil {
				return err
			}
			v.bin = s.cfg.Bin
			if s.cfg.earlier != "" {
				v.bin = s.cfg.earlier
			}
			s.Services = append(s.Services, v)
			if err := v.Start(); err != nil {
				return err
			}
		}
	}
	return nil
}

// lease is SENDER_LEASE of a site, unless its settings say otherwise.
const lease = 3 * time.Second

// Service finds one by its name; asking for one that is not there is a fault of
// the scenario.
func (s *Site) Service(name string) *Service {
	for _, v := range s.Services {
		if v.Name == name {
			return v
		}
	}
	panic("chaos: no service " + name)
}

// note keeps what was done to the site, and tells it.
func (s *Site) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	s.mu.Lock()
	s.faults = append(s.faults, text)
	s.mu.Unlock()
	s.cfg.Say("fault: %s", text)
}

// Faults lists what was done so far.
func (s *Site) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.faults...)
}

// password is what no log may show.
func (s *Site) password() string {
	u, err := url.Parse(s.databaseURL)
	if err != nil || u.User == nil {
		return ""
	}
	secret, _ := u.User.Password()
	return secret
}
