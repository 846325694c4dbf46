package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/migrations"
	"github.com/posthouse-io/posthouse/pkg/local"
)

const (
	blank       = "bench_blank" // a migrated database, the template of all others
	stopServers = 30 * time.Second
)

// servers is the ground that all measurements stand on.
type servers struct {
	program  []string
	dir      string
	log      *os.File
	postgres *local.Postgres
	admin    *pgxpool.Pool   // on the database postgres
	counted  bool            // pg_stat_statements is there
	made     int             // databases and folders, for their names
	ready    map[string]bool // databases with rows in them
}

// startServers makes the folder and starts PostgreSQL with the settings that a
// fresh server has, everything written through to the disk.
func startServers(ctx context.Context, o Options) (s *servers, err error) {
	s = &servers{program: o.Program, ready: make(map[string]bool)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop(ctx, true))
		}
	}()
	if s.dir, err = os.MkdirTemp(o.Dir, "posthouse-bench-"); err != nil {
		return s, err
	}
	if err = os.Chmod(s.dir, 0o755); err != nil { // the PostgreSQL account must enter it
		return s, err
	}
	if s.log, err = os.Create(filepath.Join(s.dir, "bench.log")); err != nil {
		return s, err
	}
	if err = s.startPostgres(ctx, !o.Volatile); err != nil {
		return s, err
	}
	if s.admin, err = pgxpool.New(ctx, s.postgres.URL("postgres")); err != nil {
		return s, fmt.Errorf("connect: %w", err)
	}
	if s.counted {
		if _, err = s.admin.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"); err != nil {
			return s, fmt.Errorf("pg_stat_statements: %w", err)
		}
	}
	if err = s.postgres.CreateDatabase(ctx, blank); err != nil {
		return s, err
	}
	_, err = migrations.Up(ctx, s.postgres.URL(blank))
	return s, err
}

// startPostgres starts the server with pg_stat_statements, or without where the
// installation does not have it.
func (s *servers) startPostgres(ctx context.Context, durable bool) (err error) {
	cfg := local.PostgresConfig{Dir: filepath.Join(s.dir, "postgres"), Durable: durable, Log: zerolog.New(s.log),
		Settings: map[string]string{"shared_buffers": "128MB", "max_wal_size": "1GB", "shared_preload_libraries": "pg_stat_statements"}}
	if s.postgres, err = local.StartPostgres(ctx, cfg); err == nil {
		s.counted = true
		return nil
	}
	delete(cfg.Settings, "shared_preload_libraries")
	s.postgres, err = local.StartPostgres(ctx, cfg)
	return err
}

// stop ends everything. The folder stays when keep says so, for its log.
func (s *servers) stop(ctx context.Context, keep bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopServers)
	defer cancel()
	var errs []error
	if s.admin != nil {
		s.admin.Close()
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop(ctx))
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	switch {
	case s.dir == "":
	case keep:
		// The data are of no use to anybody.
		errs = append(errs, os.RemoveAll(filepath.Join(s.dir, "postgres")))
	default:
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// name gives a fresh name for a database or a folder.
func (s *servers) name() string {
	s.made++
	return fmt.Sprintf("bench_%d", s.made)
}

// clone makes a database like another one and returns its name.
func (s *servers) clone(ctx context.Context, template string) (string, error) {
	name := s.name()
	_, err := s.admin.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE "+pgx.Identifier{template}.Sanitize()+" STRATEGY file_copy")
	if err != nil {
		return "", fmt.Errorf("make a database: %w", err)
	}
	return name, nil
}

func (s *servers) drop(ctx context.Context, name string) error {
	if _, err := s.admin.Exec(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("drop a database: %w", err)
	}
	return nil
}

// statements is how many statements a database has executed so far, those that
// begin and end transactions included; ok is false where nobody counts them.
func (s *servers) statements(ctx context.Context, database string) (n float64, ok bool, err error) {
	if !s.counted {
		return 0, false, nil
	}
	err = s.admin.QueryRow(ctx, `SELECT coalesce(sum(s.calls), 0)::float8 FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = $1`, database).Scan(&n)
	if err != nil {
		return 0, false, fmt.Errorf("count statements: %w", err)
	}
	return n, true, nil
}

// wal is how many bytes of log the server has written so far.
func (s *servers) wal(ctx context.Context) (n float64, err error) {
	if err = s.admin.QueryRow(ctx, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").Scan(&n); err != nil {
		return 0, fmt.Errorf("read the position of the log: %w", err)
	}
	return n, nil
}

func (s *servers) version(ctx context.Context) (v string, err error) {
	err = s.admin.QueryRow(ctx, "SHOW server_version").Scan(&v)
	return v, err
}
