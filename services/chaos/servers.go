package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

const contSignal = syscall.SIGCONT

// KillNATS is kill -9 of the bus.
func (s *Site) KillNATS() {
	s.note("kill -9 NATS")
	s.nats.Kill()
}

// StartNATS brings the bus back on its port and folder.
func (s *Site) StartNATS(ctx context.Context) error {
	u, err := url.Parse(s.natsURL)
	if err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		return fmt.Errorf("start NATS: %w", err)
	}
	s.note("NATS starts")
	return s.runNATS(ctx, port)
}

// StopNATS and ContinueNATS are SIGSTOP and SIGCONT.
func (s *Site) StopNATS() error {
	s.note("SIGSTOP NATS")
	return s.nats.Signal(syscall.SIGSTOP)
}

// ContinueNATS lets the bus go on.
func (s *Site) ContinueNATS() error {
	s.note("SIGCONT NATS")
	return s.nats.Signal(syscall.SIGCONT)
}

// KillSink is kill -9 of the mail server.
func (s *Site) KillSink() {
	s.note("kill -9 the mail server")
	s.sink.Kill()
}

// StartSink brings the mail server back on its port.
func (s *Site) StartSink(ctx context.Context) error {
	s.note("the mail server starts")
	return s.runSink(ctx, s.sinkAddr)
}

// StopPostgres is a fast shutdown; KillPostgres an immediate one, which is a crash.
func (s *Site) StopPostgres(ctx context.Context) error {
	s.note("PostgreSQL stops (fast)")
	return s.Postgres.Stop(ctx)
}

// KillPostgres ends the database as a crash would.
func (s *Site) KillPostgres() {
	s.note("PostgreSQL stops (immediate)")
	s.Postgres.Kill()
}

// StartPostgres brings the database back.
func (s *Site) StartPostgres(ctx context.Context) error {
	s.note("PostgreSQL starts")
	return s.Postgres.Restart(ctx)
}

// Terminate ends every session of the services in the database, n times.
func (s *Site) Terminate(ctx context.Context, n int, every time.Duration) error {
	s.note("pg_terminate_backend of every session, %d times, each %s", n, every)
	for range n {
		const sql = `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name LIKE 'posthouse%'`
		var ended int
		if err := s.DB.QueryRow(ctx, sql).Scan(&ended); err != nil {
			return fmt.Errorf("terminate: %w", err)
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
	return nil
}

// ReadOnly makes every transaction that begins from now on one that may only read.
func (s *Site) ReadOnly(ctx context.Context, on bool) error {
	s.note("PostgreSQL read-only: %v", on)
	value := "off"
	if on {
		value = "on"
	}
	conn, err := s.DB.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("read-only: %w", err)
	}
	defer conn.Release()
	for _, sql := range []string{"SET default_transaction_read_only = off", "ALTER SYSTEM SET default_transaction_read_only = " + value, "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("read-only: %w", err)
		}
	}
	return nil
}

// CopyStore copies the folder of NATS, which must not run, aside; RestoreStore puts
// such a copy in its place: what came after it is lost.
func (s *Site) CopyStore() (string, error) {
	to := s.natsDir + ".copy"
	if err := errors.Join(os.RemoveAll(to), copyTree(s.natsDir, to)); err != nil {
		return "", fmt.Errorf("copy the store: %w", err)
	}
	return to, nil
}

// RestoreStore replaces the folder of NATS by a copy.
func (s *Site) RestoreStore(from string) error {
	s.note("the store of NATS is as it was some time ago")
	if err := errors.Join(os.RemoveAll(s.natsDir), os.Rename(from, s.natsDir)); err != nil {
		return fmt.Errorf("restore the store: %w", err)
	}
	return nil
}

func copyTree(from, to string) error {
	return os.CopyFS(to, os.DirFS(from))
}

// tmpfs mounts a small file system on a new folder; the function unmounts it. Only
// root may; others get an error that says so.
func tmpfs(ctx context.Context, dir string, bytes int64) (func() error, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("only root may mount a small file system")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("mount: %w", err)
	}
	if out, err := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d,mode=0755", bytes), "tmpfs", dir).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mount a tmpfs: %w: %s", err, out)
	}
	return func() error {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil { //nolint:noctx // it must happen
			return fmt.Errorf("unmount %s: %w: %s", dir, err, out)
		}
		return os.RemoveAll(dir)
	}, nil
}

// fill writes a file until the disk is full.
func fill(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("fill the disk: %w", err)
	}
	defer func() { _ = f.Close() }()
	for size := 1 << 20; size >= 512; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				return fmt.Errorf("fill the disk: %w", err)
			}
			size /= 2
		}
	}
	return nil
}

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
