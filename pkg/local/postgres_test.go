package local_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/local"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

// folder is a temporary folder that another user can enter, as t.TempDir's are
// not under every umask.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "local-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "pg")
}

func start(t *testing.T, cfg local.PostgresConfig) *local.Postgres {
	t.Helper()
	p, err := local.StartPostgres(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		_ = p.Stop(context.Background())
	})
	return p
}

func query(t *testing.T, url, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	rows, err := conn.Query(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(got, ",")
}

const (
	write = "CREATE TABLE kept (word text); INSERT INTO kept VALUES ('kept')"
	read  = "SELECT word FROM kept"
)

func TestPostgresKeepsDataOverStopAndStart(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	first := start(t, local.PostgresConfig{Dir: dir, Durable: true, Log: localtest.Logger(t)})
	query(t, first.URL("postgres"), write)
	for range 2 {
		if err := first.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if first.PID() != 0 {
		t.Error("a stopped server has a process id")
	}
	second := start(t, local.PostgresConfig{Dir: dir, Durable: true, Log: localtest.Logger(t)})
	if got := query(t, second.URL("postgres"), read); got != "kept" {
		t.Errorf("read %q", got)
	}
	for setting, want := range map[string]string{"data_checksums": "on", "fsync": "on", "server_encoding": "UTF8"} {
		if got := query(t, second.URL("postgres"), "SHOW "+setting); got != want {
			t.Errorf("%s is %s, want %s", setting, got, want)
		}
	}
}

func TestPostgresRestartsOnItsPort(t *testing.T) {
	t.Parallel()
	p := start(t, local.PostgresConfig{Dir: folder(t), Log: localtest.Logger(t)})
	url, pid := p.URL("postgres"), p.PID()
	query(t, url, write)
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.URL("postgres") != url || p.PID() == pid || p.PID() == 0 {
		t.Errorf("process %d was %d; address kept: %t", p.PID(), pid, p.URL("postgres") == url)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Restart(t.Context()); err != nil { // of a stopped one
		t.Fatal(err)
	}
	if got := query(t, url, read); got != "kept" {
		t.Errorf("read %q", got)
	}
}

func TestPostgresKeepsCommitsOverKill(t *testing.T) {
	t.Parallel()
	p := start(t, local.PostgresConfig{Dir: folder(t), Log: localtest.Logger(t)})
	query(t, p.URL("postgres"), write)
	done := p.Done()
	p.Kill()
	<-done
	if p.PID() != 0 {
		t.Error("a killed server has a process id")
	}
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query(t, p.URL("postgres"), read); got != "kept" {
		t.Errorf("read %q", got)
	}
}

func TestPostgresDeathIsTold(t *testing.T) {
	t.Parallel()
	var log locked
	p := start(t, local.PostgresConfig{Dir: folder(t), Log: zerolog.New(&log)})
	query(t, p.URL("postgres"), write)
	done := p.Done()
	if err := syscall.Kill(p.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	<-done
	if !strings.Contains(log.String(), "postgres.died") {
		t.Errorf("log: %s", log.String())
	}
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query(t, p.URL("postgres"), read); got != "kept" {
		t.Errorf("read %q", got)
	}
}

type locked struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func TestPostgresDiesWithItsOwner(t *testing.T) {
	t.Parallel()
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprintf("durable=%t", durable), func(t *testing.T) {
			t.Parallel()
			dir := folder(t)
			owner, server, url := startOwner(t, dir, durable)
			query(t, url, write)
			if err := owner.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = owner.Wait()
			if durable {
				// At once, while the old server may still be writing its checkpoint.
				p := start(t, local.PostgresConfig{Dir: dir, Durable: true, Log: localtest.Logger(t)})
				if got := query(t, p.URL("postgres"), read); got != "kept" {
					t.Errorf("read %q", got)
				}
			}
			localtest.Eventually(t, 30*time.Second, func() error {
				pids, _ := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
				if strings.HasPrefix(string(pids), strconv.Itoa(server)+"\n") {
					return errors.New("the server outlives its owner")
				}
				return nil
			})
			if !durable {
				p := start(t, local.PostgresConfig{Dir: dir, Log: localtest.Logger(t)})
				if got := query(t, p.URL("postgres"), read); got != "kept" {
					t.Errorf("read %q", got)
				}
			}
		})
	}
}

func TestPostgresFolderHasOneOwner(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	_, _, _ = startOwner(t, dir, false)
	_, err := local.StartPostgres(t.Context(), local.PostgresConfig{Dir: dir, Log: localtest.Logger(t)})
	if !errors.Is(err, local.ErrInUse) {
		t.Fatalf("want ErrInUse, got %v", err)
	}
	if local.Abandoned(dir) {
		t.Error("a folder in use counts as abandoned")
	}
}

func TestTwoServersAtOnce(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	servers := make([]*local.Postgres, 2)
	for i := range servers {
		dir := folder(t)
		wg.Go(func() {
			var err error
			servers[i], err = local.StartPostgres(t.Context(), local.PostgresConfig{Dir: dir, Log: localtest.Logger(t)})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, p := range servers {
		if p == nil {
			continue
		}
		if got := query(t, p.URL("postgres"), "SELECT 'here'"); got != "here" {
			t.Errorf("read %q", got)
		}
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestPostgresStopIsBounded(t *testing.T) {
	t.Parallel()
	p := start(t, local.PostgresConfig{Dir: folder(t), Log: localtest.Logger(t)})
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := p.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("stop of a hanging server: %v", err)
	}
	if p.PID() != 0 {
		t.Error("the server still runs")
	}
}

func TestPostgresIsPrivate(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	p := start(t, local.PostgresConfig{Dir: dir, Log: localtest.Logger(t),
		Settings: map[string]string{"listen_addresses": "*", "work_mem": "5MB"}})
	if got := query(t, p.URL("postgres"), "SHOW listen_addresses"); got != "127.0.0.1" {
		t.Errorf("listens on %s", got)
	}
	if got := query(t, p.URL("postgres"), "SHOW work_mem"); got != "5MB" {
		t.Errorf("setting not taken: %s", got)
	}
	secret, err := os.ReadFile(filepath.Join(dir, "password"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "password"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("password file: %v %v", info.Mode(), err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", p, p, p, p); strings.Contains(text, string(secret)) {
		t.Error("printing the server prints its password")
	}
	for _, wrong := range []string{"wrong", ""} {
		url := strings.Replace(p.URL("postgres"), string(secret), wrong, 1)
		if _, err := pgx.Connect(t.Context(), url); err == nil {
			t.Errorf("password %q lets in", wrong)
		}
	}
}

func TestCreateDatabase(t *testing.T) {
	t.Parallel()
	p := start(t, local.PostgresConfig{Dir: folder(t), Log: localtest.Logger(t)})
	for range 2 {
		if err := p.CreateDatabase(t.Context(), `post"house`); err != nil {
			t.Fatal(err)
		}
	}
	if got := query(t, p.URL(`post"house`), "SELECT current_database()::text"); got != `post"house` {
		t.Errorf("connected to %q", got)
	}
}
