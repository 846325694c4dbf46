package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// diskFaults is F9: a server's disk is full for a while. The server that stops of
// it is started again when there is room, as its supervisor would.
func diskFaults() []Scenario {
	ground := func(size int64, use func(*Config, string)) func(context.Context, *Config, Options) (func() error, error) {
		return func(ctx context.Context, cfg *Config, o Options) (func() error, error) {
			dir, err := os.MkdirTemp(o.Parent, "posthouse-disk-")
			if err != nil {
				return nil, fmt.Errorf("disk: %w", err)
			}
			undo, err := tmpfs(ctx, dir, size)
			if err != nil {
				return nil, errors.Join(err, os.Remove(dir))
			}
			if err := os.Chmod(dir, 0o755); err != nil {
				return nil, errors.Join(err, undo())
			}
			use(cfg, dir)
			return undo, nil
		}
	}
	load := Load{Rate: 40, Make: mixedMail}
	return []Scenario{
		{Name: "F9.postgres", Fault: "PostgreSQL's disk is full for 8 s", Load: load, Settle: 90 * time.Second, Config: Config{Durable: true},
			Ground: ground(300<<20, func(cfg *Config, dir string) { cfg.PostgresDir = filepath.Join(dir, "postgres") }),
			Do: func(ctx context.Context, r *Run) error {
				return r.fullDisk(ctx, r.cfg.PostgresDir, func(ctx context.Context) error {
					if r.Postgres.PID() != 0 {
						return nil
					}
					return r.StartPostgres(ctx)
				})
			}},
		{Name: "F9.nats", Fault: "NATS's disk is full for 8 s", Load: load, Settle: 90 * time.Second, Config: Config{MaxStore: 512 << 20, StreamBytes: 256 << 20},
			Note:   "a full disk freezes the streams until NATS is restarted; it is, when there is room",
			Ground: ground(24<<20, func(cfg *Config, dir string) { cfg.NATSDir = filepath.Join(dir, "nats") }),
			Do: func(ctx context.Context, r *Run) error {
				return r.fullDisk(ctx, r.cfg.NATSDir, func(ctx context.Context) error {
					r.KillNATS()
					return r.StartNATS(ctx)
				})
			}},
	}
}

func (r *Run) fullDisk(ctx context.Context, dir string, restart func(context.Context) error) error {
	if err := r.Acknowledged(ctx, 100); err != nil {
		return err
	}
	ballast := filepath.Join(filepath.Dir(dir), "ballast")
	r.note("the disk of %s is full", filepath.Base(dir))
	if err := fill(ballast); err != nil {
		return err
	}
	err := pause(ctx, 8*time.Second)
	r.note("the disk of %s has room again", filepath.Base(dir))
	if err := errors.Join(err, os.Remove(ballast)); err != nil {
		return fmt.Errorf("disk: %w", err)
	}
	if err := restart(ctx); err != nil {
		return err
	}
	return r.Acknowledged(ctx, 100)
}
