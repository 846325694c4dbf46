package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	pollEvery   = 10 * time.Millisecond
	orphanBound = 30 * time.Second // for the server of a dead owner to end
	portRounds  = 5                // tries of a port that we chose
)

// prepare finds account and programs, takes the folder and fills it. On success
// the lock is held.
func (p *Postgres) prepare(ctx context.Context) (err error) {
	if p.who, err = accountFor(p.at.data()); err != nil {
		return err
	}
	if err = p.at.open(p.who); err != nil {
		return err
	}
	if p.lock, err = lockDir(p.at.dir); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			p.lock.release()
		}
	}()
	major, err := p.at.major()
	if err != nil {
		return err
	}
	if p.programs, err = findPrograms(ctx, p.cfg.Places, major); err != nil {
		return err
	}
	if major == 0 {
		if err = p.at.create(ctx, p.programs, p.who, p.cfg.Durable); err != nil {
			return err
		}
	}
	p.password, err = p.at.readPassword()
	return err
}

// start runs the server on the folder that we hold. A port of our own choice
// may be lost to another process between the choice and the use of it.
func (p *Postgres) start(ctx context.Context) error {
	if err := p.endOrphan(ctx); err != nil {
		return err
	}
	if p.port != 0 {
		return p.launch(ctx, p.port)
	}
	for round := 1; ; round++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		err = p.launch(ctx, port)
		if err == nil {
			p.port = port
			return nil
		}
		lost := checkPort(port) != nil
		if !lost || round == portRounds || ctx.Err() != nil {
			return err
		}
	}
}

// launch runs one server process and waits until it answers.
func (p *Postgres) launch(ctx context.Context, port int) error {
	if err := checkPort(port); err != nil {
		return err
	}
	log, from, err := p.at.openLog()
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()

	// The server outlives the context of its start.
	cmd := p.at.command(context.WithoutCancel(ctx), p.programs.path("postgres"), p.who, p.arguments(port)...)
	cmd.Stdout, cmd.Stderr = log, log
	// A durable server whose owner dies closes its sessions and writes a
	// checkpoint; one for tests must be gone at once.
	death := syscall.SIGQUIT
	if p.cfg.Durable {
		death = syscall.SIGINT
	}
	ready := false
	child, err := spawn(cmd, death, func(err error) {
		p.cfg.Log.Warn().Err(err).Int("port", port).Str("log", p.at.logFile()).Msg("postgres.died")
	})
	if err != nil {
		return err
	}
	defer func() {
		if !ready {
			child.quit()
		}
	}()
	if err := p.lock.record(child.pid()); err != nil {
		return err
	}
	if err := p.await(ctx, child, port); err != nil {
		if other := p.at.postmaster(); other.pid != 0 && other.pid != child.pid() && running(other.pid) {
			return fmt.Errorf("a server that this process did not start (process %d) runs in %s: stop it first", other.pid, p.at.dir)
		}
		return fmt.Errorf("%w; the server said: %s", err, p.at.said(from))
	}
	ready = true
	p.process = child
	p.cfg.Log.Info().Int("port", port).Int("pid", child.pid()).Str("dir", p.at.dir).Msg("postgres.started")
	return nil
}

// await returns when the server has said that it is ready and lets us in.
func (p *Postgres) await(ctx context.Context, child *process, port int) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if now := p.at.postmaster(); now.pid == child.pid() && now.state == "ready" {
			break
		}
		select {
		case <-child.done:
			return errors.New("the server ended")
		case <-ctx.Done():
			return fmt.Errorf("the server was not ready in time: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
	conn, err := pgx.Connect(ctx, p.url(port, "postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// arguments are the settings of the server as options. The later ones win, so
// no setting of the caller's can open the server to the network.
func (p *Postgres) arguments(port int) []string {
	settings := []string{
		"max_connections=200",
		"timezone=UTC", "log_timezone=UTC",
		"log_min_messages=warning",
		// Statements and the values of keys are payload: not in a log.
		"log_min_error_statement=panic", "log_error_verbosity=terse",
		"log_checkpoints=off", "log_line_prefix=%m [%p] ",
	}
	if !p.cfg.Durable {
		// Not synchronous_commit: a commit must survive the death of the
		// server, here as well.
		settings = append(settings, "fsync=off", "full_page_writes=off", "shared_buffers=32MB",
			"min_wal_size=32MB", "max_wal_size=256MB")
	}
	var own []string
	for name, value := range p.cfg.Settings {
		own = append(own, name+"="+value)
	}
	slices.Sort(own)
	settings = append(settings, own...)
	settings = append(settings, "listen_addresses="+loopback, "port="+strconv.Itoa(port), "unix_socket_directories=",
		"logging_collector=off", "log_destination=stderr")
	args := []string{"-D", p.at.data()}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	return args
}

// endOrphan waits for the server of an owner that died. Linux has told it to end
// already; where nobody did, we do, once we know it for ours by its password.
// Other servers, and stale files, are left to PostgreSQL's own check.
func (p *Postgres) endOrphan(ctx context.Context) error {
	orphan := p.at.postmaster()
	pid := orphan.pid
	if pid == 0 || pid != p.lock.server() || !running(pid) {
		return nil
	}
	p.cfg.Log.Warn().Int("pid", pid).Str("dir", p.at.dir).Msg("postgres.orphan")
	ctx, cancel := context.WithTimeoutCause(ctx, orphanBound,
		fmt.Errorf("the server of an earlier run (process %d) has not ended in %s: stop it", pid, orphanBound))
	defer cancel()
	// A server that is shutting down refuses: then there is nothing to ask.
	if conn, err := pgx.Connect(ctx, p.url(orphan.port, "postgres")); err == nil {
		_ = conn.Close(ctx)
		if err := syscall.Kill(pid, syscall.SIGINT); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("end the server of an earlier run (process %d): %w", pid, err)
		}
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if p.at.postmaster().pid != pid || !running(pid) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// running says whether a process of that id exists; one that we may not signal
// does.
func running(pid int) bool {
	proc, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	err = proc.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}
