package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/posthouse-io/posthouse/pkg/bus"
)

// closeTimeout bounds each of the two halves of Close: connections, telemetry.
const closeTimeout = 3 * time.Second

// Process is what a running service has in its hands.
type Process struct {
	Name     string // "sender"
	Instance string // host-pid-random: unique per start, fit for a subject token
	Settings Settings
	Log      zerolog.Logger
	DB       *pgxpool.Pool
	NATS     *nats.Conn
	Health   *Health
	Tracer   trace.Tracer
	Meter    metric.Meter

	telemetry telemetry
}

// Open prepares a process and waits until PostgreSQL, its schema and NATS are
// there. It returns an error when ctx ends first, when the schema refuses this
// binary, or when NATS refuses the connection for good. Close what it returns.
// It serves no health endpoint; Run does.
func Open(ctx context.Context, name string, s Settings) (*Process, error) {
	p, err := prepare(ctx, name, s, os.Stderr)
	if err != nil {
		return nil, err
	}
	if err := p.connect(ctx); err != nil {
		return nil, errors.Join(err, p.Close(ctx))
	}
	return p, nil
}

// prepare is Open up to the first connection.
func prepare(ctx context.Context, name string, s Settings, stderr io.Writer) (*Process, error) {
	if s.LogTo != nil {
		stderr = s.LogTo
	}
	instance := newInstance()
	p := &Process{
		Name: name, Instance: instance, Settings: s,
		Log:    NewLogger(stderr, s, name, instance),
		Health: newHealth(),
	}
	var err error
	if p.telemetry, err = openTelemetry(ctx, s, name, instance, p.Log); err != nil {
		return nil, fmt.Errorf("open telemetry: %w", err)
	}
	p.Tracer, p.Meter = p.telemetry.tracer(), p.telemetry.meter()
	return p, nil
}

func (p *Process) connect(ctx context.Context) error {
	cfg, err := p.Settings.pool(p.Name)
	if err != nil {
		return err
	}
	if p.DB, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return fmt.Errorf("open the database pool: %w", err)
	}
	// The connection outlives ctx: work in hand still needs it after the signal.
	if p.NATS, err = bus.Connect(context.WithoutCancel(ctx), p.Settings.NATS, "posthouse-"+p.Name+" "+p.Instance, p.Log); err != nil {
		return fmt.Errorf("open the NATS connection: %w", err)
	}
	db, nc := p.DB, p.NATS
	p.Health.Add("db", db.Ping)
	p.Health.Add("nats", func(context.Context) error {
		if status := nc.Status(); status != nats.CONNECTED {
			return fmt.Errorf("%s", status)
		}
		return nil
	})
	waits, ctx := errgroup.WithContext(ctx)
	waits.Go(func() error { return awaitDatabase(ctx, db, p.Log) })
	waits.Go(func() error { return awaitNATS(ctx, nc) })
	if err := waits.Wait(); err != nil {
		return err
	}
	p.Health.enter(phaseReady)
	return nil
}

// Close drains NATS, closes the pool and flushes telemetry, each within three
// seconds even when ctx has ended; an earlier deadline of ctx does not cut the
// flush short. Use nothing of the process afterwards.
func (p *Process) Close(ctx context.Context) error {
	p.Health.enter(phaseStopping)
	links, cancel := fresh(ctx)
	defer cancel()
	err := errors.Join(drain(links, p.NATS), closePool(links, p.DB))
	flush, cancel := fresh(ctx)
	defer cancel()
	if e := p.telemetry.close(flush); e != nil {
		err = errors.Join(err, fmt.Errorf("flush telemetry: %w", e))
	}
	return err
}

func fresh(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
}

// drain lets subscriptions finish and published messages leave.
func drain(ctx context.Context, nc *nats.Conn) error {
	if nc == nil || nc.IsClosed() {
		return nil
	}
	defer nc.Close()
	if !nc.IsConnected() {
		return nil // nobody is there to drain to
	}
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)
	if err := nc.Drain(); err != nil {
		return fmt.Errorf("drain NATS: %w", err)
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return errors.New("drain NATS: not done in time")
	}
}

// closePool waits for connections that are in use, within a bound: work that
// was left behind must not hold up the end of the process.
func closePool(ctx context.Context, db *pgxpool.Pool) error {
	if db == nil {
		return nil
	}
	done := make(chan struct{})
	go func() { defer close(done); db.Close() }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the database pool: %d connections are still in use", db.Stat().AcquiredConns())
	}
}

var noToken = regexp.MustCompile(`[^A-Za-z0-9_-]+`)

// newInstance is host-pid-random within the 64 characters of a subject token.
func newInstance() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "host"
	}
	host = noToken.ReplaceAllString(host, "-")
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return fmt.Sprintf("%.40s-%d-%s", host, os.Getpid(), hex.EncodeToString(b[:]))
}
