package local

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rs/zerolog"
)

func enterable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "local-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Where the system does not end the server of a dead owner, the next start does.
// The owner of this test "dies" by letting go of the folder.
func TestOrphanIsEnded(t *testing.T) {
	t.Parallel()
	cfg := PostgresConfig{Dir: filepath.Join(enterable(t), "pg"), Log: zerolog.Nop()}
	dead, err := StartPostgres(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	dead.lock.release()
	heir, err := StartPostgres(t.Context(), cfg)
	if err != nil {
		dead.Kill()
		t.Fatal(err)
	}
	<-dead.Done()
	if err := heir.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

// A server that somebody else started on our folder is not ours to end.
func TestForeignServerIsLeftAlone(t *testing.T) {
	t.Parallel()
	cfg := PostgresConfig{Dir: filepath.Join(enterable(t), "pg"), Log: zerolog.Nop()}
	foreign, err := StartPostgres(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer foreign.Kill()
	if err := foreign.lock.record(0); err != nil {
		t.Fatal(err)
	}
	foreign.lock.release()
	if p, err := StartPostgres(t.Context(), cfg); err == nil {
		_ = p.Stop(context.Background())
		t.Fatal("two servers on one folder")
	} else if !strings.Contains(err.Error(), "did not start") {
		t.Errorf("error: %v", err)
	}
	if foreign.PID() == 0 {
		t.Error("the foreign server was ended")
	}
}

func TestAccountReaches(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(enterable(t), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(enterable(t), "link")
	if err := os.Symlink(closed, link); err != nil {
		t.Fatal(err)
	}
	stranger := &account{name: "stranger", uid: 54321, gid: 54321}
	for _, dir := range []string{filepath.Join(closed, "a", "b"), filepath.Join(link, "a")} {
		err := stranger.reaches(dir)
		if err == nil || !strings.Contains(err.Error(), closed) || !strings.Contains(err.Error(), "/var/lib/posthouse") {
			t.Errorf("%s: %v", dir, err)
		}
	}
	for who, dir := range map[*account]string{stranger: closed, nil: filepath.Join(closed, "a")} {
		if err := who.reaches(dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

func TestLogIsMovedAside(t *testing.T) {
	t.Parallel()
	c := cluster{dir: t.TempDir()}
	if err := os.WriteFile(c.logFile(), make([]byte, logLimit+1), 0o600); err != nil {
		t.Fatal(err)
	}
	f, at, err := c.openLog()
	if err != nil {
		t.Fatal(err)
	}
	if at != 0 {
		t.Errorf("log begins at %d", at)
	}
	if _, err := f.WriteString("FATAL:  one\nHINT:  two\n"); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if got := c.said(at); got != "FATAL:  one | HINT:  two" {
		t.Errorf("said %q", got)
	}
}

func TestParsePostmaster(t *testing.T) {
	t.Parallel()
	whole := "123\n/data\n1700000000\n5433\n\n127.0.0.1\n  5433001        55\nready   \n"
	for text, want := range map[string]postmaster{
		whole:         {pid: 123, port: 5433, state: "ready"},
		whole[:30]:    {pid: 123, port: 5433},
		"123\n/da":    {pid: 123},
		"":            {},
		"elephant\n":  {},
		"-5\n/data\n": {},
	} {
		if got := parsePostmaster(text); got != want {
			t.Errorf("%q is %+v, want %+v", text, got, want)
		}
	}
}

func FuzzParsePostmaster(f *testing.F) {
	f.Add("123\n/data\n1700000000\n5433\n\n127.0.0.1\n  5433001        55\nready   \n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if m := parsePostmaster(text); m.pid < 0 || m.port < 0 || m.port > 65535 || m.pid == 0 && m != (postmaster{}) {
			t.Errorf("%+v", m)
		}
	})
}

func FuzzParseVersion(f *testing.F) {
	f.Add("postgres (PostgreSQL) 17.2 (Debian 17.2-1)")
	f.Add("postgres (PostgreSQL) 18beta1")
	f.Fuzz(func(t *testing.T, text string) {
		if major, ok := parseVersion(text); ok && (major < 0 || major > 9999) || !ok && major != 0 {
			t.Errorf("%d %t", major, ok)
		}
	})
}

// A child that holds the lock file open (forked, its program not begun) does not
// keep a folder locked that was given up.
func TestALockIsGivenUpThoughAnotherHoldsItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := syscall.Dup(int(l.file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Close(fd) }()
	if _, err := lockDir(dir); !errors.Is(err, ErrInUse) {
		t.Fatalf("locked twice: %v", err)
	}
	l.release()
	again, err := lockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	again.release()
}
