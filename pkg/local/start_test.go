package local_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/local"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

func TestPostgresStartErrors(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = taken.Close() })
	port := taken.Addr().(*net.TCPAddr).Port

	inside := func(t *testing.T, name, content string) string {
		dir := folder(t)
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for name, c := range map[string]struct {
		cfg  func(t *testing.T) local.PostgresConfig
		is   error
		says []string
	}{
		"no folder":    {func(*testing.T) local.PostgresConfig { return local.PostgresConfig{} }, nil, []string{"no folder"}},
		"no such port": {func(t *testing.T) local.PostgresConfig { return local.PostgresConfig{Dir: folder(t), Port: 70000} }, nil, []string{"70000"}},
		"not installed": {func(t *testing.T) local.PostgresConfig {
			return local.PostgresConfig{Dir: folder(t), Places: []string{t.TempDir()}}
		}, local.ErrNoPrograms, []string{"apt-get install postgresql", "dnf install postgresql-server", "brew install postgresql@17", "DATABASE_URL"}},
		"foreign folder": {func(t *testing.T) local.PostgresConfig {
			return local.PostgresConfig{Dir: inside(t, "letters.txt", "dear aunt")}
		}, nil, []string{"letters.txt", "empty folder"}},
		"file in place of folder": {func(t *testing.T) local.PostgresConfig {
			return local.PostgresConfig{Dir: filepath.Join(inside(t, "file", ""), "file")}
		}, nil, []string{"file"}},
		"other version": {func(t *testing.T) local.PostgresConfig {
			return local.PostgresConfig{Dir: inside(t, "data/PG_VERSION", "9\n")}
		}, local.ErrNoPrograms, []string{"version 9, which made this cluster", "found only"}},
		"no version": {func(t *testing.T) local.PostgresConfig {
			return local.PostgresConfig{Dir: inside(t, "data/PG_VERSION", "elephant")}
		}, nil, []string{"elephant"}},
		"port taken": {func(t *testing.T) local.PostgresConfig {
			return local.PostgresConfig{Dir: folder(t), Port: port}
		}, nil, []string{fmt.Sprintf("port %d", port)}},
		"bad setting": {func(t *testing.T) local.PostgresConfig {
			return local.PostgresConfig{Dir: folder(t), Settings: map[string]string{"shared_buffers": "plenty"}}
		}, nil, []string{"shared_buffers", "the server said"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := local.StartPostgres(t.Context(), c.cfg(t))
			if err == nil {
				_ = p.Stop(t.Context())
				t.Fatal("no error")
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error is not %v: %v", c.is, err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error does not say %q: %v", s, err)
				}
			}
		})
	}
}

func TestPostgresStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := local.StartPostgres(ctx, local.PostgresConfig{Dir: dir}); err == nil {
		t.Fatal("no error")
	}
	// Nothing is left that would disturb the next start.
	start(t, local.PostgresConfig{Dir: dir, Log: localtest.Logger(t)})
}

func TestPostgresFinishesAnUnfinishedCluster(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	half := filepath.Join(dir, "data.new", "base")
	if err := os.MkdirAll(half, 0o700); err != nil {
		t.Fatal(err)
	}
	p := start(t, local.PostgresConfig{Dir: dir, Log: localtest.Logger(t)})
	if got := query(t, p.URL("postgres"), "SELECT 'here'"); got != "here" {
		t.Errorf("read %q", got)
	}
}
