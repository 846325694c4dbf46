package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
)

const duplicateDatabase = "42P04" // SQLSTATE

// PostgresConfig describes a private PostgreSQL server.
type PostgresConfig struct {
	// Dir is the folder of the cluster. It is made when missing; data in it
	// survive a stop.
	Dir string
	// Port to listen on at 127.0.0.1; 0 picks a free one.
	Port int
	// Durable keeps fsync and full page writes on. Without it a crash of the
	// machine may lose the cluster (a crash of the process does not): for tests.
	Durable bool
	// Settings are further server settings, by their PostgreSQL names. They are
	// visible in the list of processes: no secrets.
	Settings map[string]string
	// Places are the folders (or globs) in which to look for the server's
	// programs, instead of PATH and the usual places.
	Places []string
	// Log hears of starts, stops and deaths.
	Log zerolog.Logger
}

// Postgres is a running PostgreSQL server that belongs to this process. Its
// methods may be called from several goroutines.
type Postgres struct {
	cfg      PostgresConfig
	at       cluster
	programs programs
	who      *account
	password string

	mu      sync.Mutex // held for the length of a start or a stop
	port    int
	lock    *lock    // nil once stopped
	process *process // the present one or the last
}

// StartPostgres makes the cluster if there is none, starts the server and
// returns when it answers. ctx bounds the start only. ErrNoPrograms and ErrInUse
// can be told apart with errors.Is.
func StartPostgres(ctx context.Context, cfg PostgresConfig) (*Postgres, error) {
	if cfg.Dir == "" {
		return nil, errors.New("start PostgreSQL: no folder given")
	}
	if cfg.Port < 0 || cfg.Port > 65535 {
		return nil, fmt.Errorf("start PostgreSQL: port %d is not one", cfg.Port)
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	p := &Postgres{cfg: cfg, at: cluster{dir: dir}, port: cfg.Port}
	if err := p.prepare(ctx); err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	if err := p.start(ctx); err != nil {
		p.lock.release()
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	return p, nil
}

// URL is the connection string of a database on this server. It holds the
// password: not for logs.
func (p *Postgres) URL(database string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url(p.port, database)
}

func (p *Postgres) url(port int, database string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(superuser, p.password),
		Host:     net.JoinHostPort(loopback, strconv.Itoa(port)),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// CreateDatabase makes sure that a database of that name exists.
func (p *Postgres) CreateDatabase(ctx context.Context, name string) error {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	_, err = conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize())
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == duplicateDatabase {
		return nil
	}
	if err != nil {
		return fmt.Errorf("create database %s: %w", name, err)
	}
	return nil
}

// PID is the process id of the server, 0 when it does not run.
func (p *Postgres) PID() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.process == nil || !p.process.alive() {
		return 0
	}
	return p.process.pid()
}

// Done is closed when the present server process has ended, for whatever
// reason. After a Restart there is another.
func (p *Postgres) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.process.done
}

// Stop shuts the server down fast (sessions are cut, a checkpoint is written)
// and gives the folder up. When ctx ends first the server is killed and the
// error says so; the data stay whole. Stopping twice is no error.
func (p *Postgres) Stop(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock == nil {
		return nil
	}
	err := p.process.end(ctx, syscall.SIGINT)
	p.lock.release()
	p.lock = nil
	if err != nil {
		return fmt.Errorf("stop PostgreSQL: %w", err)
	}
	p.cfg.Log.Info().Int("port", p.port).Msg("postgres.stopped")
	return nil
}

// Kill ends the server as a crash would: no checkpoint, no farewell, and the
// next start recovers from the log. It returns when the process is gone; the
// folder stays ours, for Restart.
func (p *Postgres) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.process.quit()
}

// Restart stops the server if it runs and starts it on the same port and folder.
func (p *Postgres) Restart(ctx context.Context) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lock == nil {
		if p.lock, err = lockDir(p.at.dir); err != nil {
			return fmt.Errorf("restart PostgreSQL: %w", err)
		}
	}
	if err := p.process.end(ctx, syscall.SIGINT); err != nil {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	if err := p.start(ctx); err != nil {
		return fmt.Errorf("restart PostgreSQL: %w", err)
	}
	return nil
}

// String names the server without its password.
func (p *Postgres) String() string {
	return "PostgreSQL in " + p.at.dir
}

// GoString keeps the password out of %#v.
func (p *Postgres) GoString() string { return p.String() }
