package localtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/migrations"
	"github.com/posthouse-io/posthouse/pkg/local"
)

const (
	startBound  = 2 * time.Minute // generous: several test binaries share few cores
	folderStart = "posthouse-test-"
	template    = "posthouse_template"
)

// shared is the cluster of this test binary. It is the one global of the
// project: tests of a package have no common owner but the process, and a
// cluster for each of them would cost a second or more every time.
var shared sharedCluster

type sharedCluster struct {
	mu       sync.Mutex
	server   *local.Postgres
	dir      string
	migrated bool
	failed   error // a start that failed is not tried again
}

// Main runs the tests of a package and then stops what they shared. It is for
// TestMain; without it the shared cluster still ends with the process. It runs
// anything with a Run, so that it can stand around another runner.
func Main(m interface{ Run() int }) int {
	defer shared.stop()
	return m.Run()
}

// Postgres makes a database with the present schema, for this test alone, and
// returns its URL. It is dropped, sessions and all, when the test ends.
func Postgres(t testing.TB) string {
	t.Helper()
	return shared.database(t, template)
}

// EmptyDatabase is Postgres without the schema.
func EmptyDatabase(t testing.TB) string {
	t.Helper()
	return shared.database(t, "template0")
}

func (s *sharedCluster) database(t testing.TB, from string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	server, err := s.get(ctx, from == template)
	if err != nil {
		t.Fatal(err)
	}
	name := "t_" + strings.ToLower(rand.Text()[:16])
	if err := execute(ctx, server, "CREATE DATABASE "+name+" TEMPLATE "+from); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), startBound)
		defer cancel()
		if err := execute(ctx, server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return server.URL(name)
}

// get starts the cluster and fills the template, each once.
func (s *sharedCluster) get(ctx context.Context, migrated bool) (*local.Postgres, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		return nil, s.failed
	}
	if s.server == nil {
		sweep()
		s.server, s.dir, s.failed = start(ctx, zerolog.Nop())
	}
	if s.failed == nil && migrated && !s.migrated {
		s.failed = fillTemplate(ctx, s.server)
		s.migrated = s.failed == nil
	}
	return s.server, s.failed
}

func (s *sharedCluster) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return
	}
	s.server.Kill() // nothing in it is worth a checkpoint
	_ = s.server.Stop(context.Background())
	_ = os.RemoveAll(s.dir)
	s.server, s.migrated, s.failed = nil, false, errors.New("localtest: the tests are over")
}

// fillTemplate migrates the template and closes it, since a database with a
// session in it cannot be copied.
func fillTemplate(ctx context.Context, server *local.Postgres) error {
	if err := server.CreateDatabase(ctx, template); err != nil {
		return err
	}
	if err := migrate(ctx, server.URL(template)); err != nil {
		return err
	}
	return execute(ctx, server, "ALTER DATABASE "+template+" WITH ALLOW_CONNECTIONS false IS_TEMPLATE true")
}

func migrate(ctx context.Context, url string) error {
	if _, err := migrations.Up(ctx, url); err != nil {
		return fmt.Errorf("localtest: %w", err)
	}
	return nil
}

// start runs a cluster in a new folder of its own.
func start(ctx context.Context, log zerolog.Logger) (*local.Postgres, string, error) {
	// Not t.TempDir, which another user cannot enter: as root, the server
	// runs as postgres.
	dir, err := os.MkdirTemp("", folderStart)
	if err != nil {
		return nil, "", fmt.Errorf("localtest: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, "", fmt.Errorf("localtest: %w", err)
	}
	server, err := local.StartPostgres(ctx, local.PostgresConfig{Dir: filepath.Join(dir, "postgres"), Log: log})
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, "", fmt.Errorf("localtest: %w", err)
	}
	return server, dir, nil
}

// sweep removes what killed test binaries left in the temporary directory. A
// young folder may be one that another binary is just about to lock.
func sweep() {
	const young = 10 * time.Minute
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), folderStart+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() || time.Since(info.ModTime()) < young {
			continue
		}
		if local.Abandoned(filepath.Join(dir, "postgres")) {
			_ = os.RemoveAll(dir)
		}
	}
}

// execute runs one statement in a session of its own: nothing that lives on may
// stay behind for a search for leaked goroutines.
func execute(ctx context.Context, server *local.Postgres, sql string) error {
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return fmt.Errorf("localtest: %w", err)
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		return fmt.Errorf("localtest: %s: %w", sql, err)
	}
	return nil
}
