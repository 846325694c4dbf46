package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rs/zerolog"
)

// maxMemory bounds the streams that somebody keeps in memory, in bytes; ours are
// on disk. The server's own default is three quarters of the machine.
const maxMemory = 256 << 20

// maxPayload lets a request with attachments through, as streams/server/nats.conf
// does.
const maxPayload = 8 << 20

// NATSConfig describes an embedded NATS server with JetStream on disk.
type NATSConfig struct {
	// Dir holds the streams. It is made when missing; they survive a stop.
	Dir string
	// Port to listen on at 127.0.0.1; 0 or -1 takes the configuration file's,
	// else a free one.
	Port int
	// SyncAlways writes every message through to the disk before it is
	// acknowledged.
	SyncAlways bool
	// MaxStore bounds the streams together, in bytes; 0 leaves it to the server
	// (three quarters of the free disk).
	MaxStore int64
	// ConfigFile is a nats-server configuration, for users, permissions and
	// TLS. Dir, and Port, SyncAlways and MaxStore where set, go before it.
	ConfigFile string
	// Log hears the server's warnings and errors.
	Log zerolog.Logger
}

// NATS is a running embedded server. Its methods may be called from several
// goroutines.
type NATS struct {
	cfg NATSConfig

	mu     sync.Mutex // held for the length of a start or a stop
	port   int
	lock   *lock // nil once stopped
	server *server.Server
}

// StartNATS returns when the server takes connections and JetStream is ready.
// ctx bounds the start only. A folder in use is ErrInUse.
func StartNATS(ctx context.Context, cfg NATSConfig) (*NATS, error) {
	if cfg.Dir == "" {
		return nil, errors.New("start NATS: no folder given")
	}
	if cfg.Port < -1 || cfg.Port > 65535 {
		return nil, fmt.Errorf("start NATS: port %d is not one", cfg.Port)
	}
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	cfg.Dir, cfg.Port = dir, max(cfg.Port, 0)
	n := &NATS{cfg: cfg, port: cfg.Port}
	if err := n.start(ctx); err != nil {
		return nil, fmt.Errorf("start NATS: %w", err)
	}
	return n, nil
}

// URL is the address for clients, without credentials.
func (n *NATS) URL() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return "nats://" + net.JoinHostPort(loopback, strconv.Itoa(n.port))
}

// Stop shuts the server down, waits for it and gives the folder up. When ctx
// ends first the server goes on stopping by itself and keeps the folder until it
// has; the error says so. Stopping twice is no error.
func (n *NATS) Stop(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.stop(ctx); err != nil {
		return fmt.Errorf("stop NATS: %w", err)
	}
	return nil
}

// Restart stops the server if it runs and starts another on the same port and
// folder.
func (n *NATS) Restart(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.stop(ctx); err != nil {
		return fmt.Errorf("restart NATS: %w", err)
	}
	if err := n.start(ctx); err != nil {
		return fmt.Errorf("restart NATS: %w", err)
	}
	return nil
}

func (n *NATS) stop(ctx context.Context) error {
	if n.lock == nil {
		return nil
	}
	gone := shutdown(n.server, n.lock)
	n.lock = nil
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the server is still stopping: %w", context.Cause(ctx))
	}
}

// shutdown ends a server and then gives its folder up. Its goroutine ends with
// the server.
func shutdown(srv *server.Server, held *lock) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		srv.Shutdown()
		srv.WaitForShutdown()
		held.release()
	}()
	return gone
}

func (n *NATS) start(ctx context.Context) error {
	opts, err := n.options()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(n.cfg.Dir, 0o700); err != nil {
		return fmt.Errorf("open folder: %w", err)
	}
	held, err := lockDir(n.cfg.Dir)
	if err != nil {
		return err
	}
	if err := held.record(0); err != nil {
		held.release()
		return err
	}
	chosen := opts.Port == 0
	for round := 1; ; round++ {
		if chosen {
			if opts.Port, err = freePort(); err != nil {
				held.release()
				return err
			}
		}
		srv, err := launchNATS(ctx, opts.Clone(), n.cfg.Log)
		if err == nil {
			n.server, n.lock, n.port = srv, held, opts.Port
			return nil
		}
		lost := chosen && checkPort(opts.Port) != nil
		if !lost || round == portRounds || ctx.Err() != nil {
			held.release()
			return err
		}
	}
}

func (n *NATS) options() (*server.Options, error) {
	opts := &server.Options{}
	if n.cfg.ConfigFile != "" {
		var err error
		if opts, err = server.ProcessConfigFile(n.cfg.ConfigFile); err != nil {
			return nil, fmt.Errorf("read configuration: %w", err)
		}
	}
	opts.Host = loopback
	if n.port != 0 {
		opts.Port = n.port
	}
	if opts.Port == server.RANDOM_PORT {
		opts.Port = 0
	}
	if opts.ServerName == "" {
		opts.ServerName = "posthouse"
	}
	opts.NoSigs = true // signals belong to main
	opts.JetStream = true
	opts.StoreDir = n.cfg.Dir
	if opts.JetStreamMaxMemory == 0 {
		opts.JetStreamMaxMemory = maxMemory
	}
	if n.cfg.SyncAlways {
		opts.SyncAlways = true
	}
	if opts.MaxPayload == 0 {
		opts.MaxPayload = maxPayload
	}
	if n.cfg.MaxStore > 0 {
		opts.JetStreamMaxStore = n.cfg.MaxStore
	}
	return opts, nil
}

// launchNATS runs one server and waits until it serves, gives up, or ctx ends. A
// server that is not returned has ended.
func launchNATS(ctx context.Context, opts *server.Options, log zerolog.Logger) (*server.Server, error) {
	if err := checkPort(opts.Port); err != nil {
		return nil, err
	}
	srv, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	voice := &natsLog{log: log, fatal: make(chan string, 1)}
	srv.SetLoggerV2(voice, false, false, false)

	// Start reads all streams from the disk, which can take long.
	started := make(chan struct{})
	go func() {
		defer close(started)
		srv.Start()
	}()
	err = serves(ctx, srv, started, voice.fatal)
	if err == nil {
		return srv, nil
	}
	srv.Shutdown()
	<-started
	srv.WaitForShutdown()
	return nil, err
}

func serves(ctx context.Context, srv *server.Server, started <-chan struct{}, fatal <-chan string) error {
	select {
	case <-started:
	case text := <-fatal:
		return errors.New(text)
	case <-ctx.Done():
		return fmt.Errorf("the server was not ready in time: %w", context.Cause(ctx))
	}
	if !srv.JetStreamEnabled() {
		select {
		case text := <-fatal:
			return errors.New(text)
		default:
			return errors.New("JetStream is not enabled")
		}
	}
	const round = 50 * time.Millisecond
	for !srv.ReadyForConnections(round) {
		select {
		case text := <-fatal:
			return errors.New(text)
		case <-ctx.Done():
			return fmt.Errorf("the server was not ready in time: %w", context.Cause(ctx))
		default:
		}
	}
	return nil
}
