package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	superuser   = "posthouse"
	logLimit    = 8 << 20 // bytes after which a start moves the log aside
	quotedBytes = 2 << 10 // of the log in an error
)

// cluster is the folder of one PostgreSQL server; doc.go draws it.
type cluster struct{ dir string }

func (c cluster) data() string     { return filepath.Join(c.dir, "data") }
func (c cluster) password() string { return filepath.Join(c.dir, "password") }
func (c cluster) logFile() string  { return filepath.Join(c.dir, "postgres.log") }
func (c cluster) pidFile() string  { return filepath.Join(c.data(), "postmaster.pid") }
func (c cluster) unborn() string   { return filepath.Join(c.dir, "data.new") }

// major is the version that made the cluster, 0 when there is none yet.
func (c cluster) major() (int, error) {
	text, err := os.ReadFile(filepath.Join(c.data(), "PG_VERSION"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read version of cluster: %w", err)
	}
	major, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("read version of cluster %s: %q is not one", c.data(), strings.TrimSpace(string(text)))
	}
	return major, nil
}

// open makes the folder and gives it to who. It refuses a folder with anything
// in it that is not ours, before it changes its owner.
func (c cluster) open(who *account) error {
	if err := who.reaches(c.dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("open cluster: %w", err)
	}
	ours := map[string]bool{lockName: true, "password": true, "data": true, "data.new": true, "postgres.log": true, "postgres.log.1": true}
	for _, e := range entries {
		if !ours[e.Name()] {
			return fmt.Errorf("folder %s holds %q, which is no part of a Posthouse cluster: choose an empty folder", c.dir, e.Name())
		}
	}
	if err := os.MkdirAll(filepath.Dir(c.dir), 0o755); err != nil {
		return fmt.Errorf("open cluster: %w", err)
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return fmt.Errorf("open cluster: %w", err)
	}
	// The umask may have made the parents narrower than we asked for.
	if err := who.reaches(c.dir); err != nil {
		return err
	}
	return who.own(c.dir)
}

// create runs initdb. The cluster appears under its name only when it is whole,
// so that one cut short is made anew.
func (c cluster) create(ctx context.Context, p programs, who *account, durable bool) error {
	if err := os.RemoveAll(c.unborn()); err != nil {
		return fmt.Errorf("create cluster: %w", err)
	}
	if err := os.WriteFile(c.password(), []byte(rand.Text()), 0o600); err != nil {
		return fmt.Errorf("create cluster: %w", err)
	}
	if err := who.own(c.password()); err != nil {
		return err
	}
	args := []string{
		"-D", c.unborn(), "-U", superuser, "--pwfile=" + c.password(), "-A", "scram-sha-256",
		"-E", "UTF8", "--locale=C", "--data-checksums",
	}
	if !durable {
		args = append(args, "--no-sync")
	}
	cmd := c.command(ctx, p.path("initdb"), who, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("create cluster in %s: %w: %s", c.dir, err, lastBytes(string(out)))
	}
	if err := os.Rename(c.unborn(), c.data()); err != nil {
		return fmt.Errorf("create cluster: %w", err)
	}
	if !durable {
		return nil
	}
	d, err := os.Open(c.dir)
	if err != nil {
		return fmt.Errorf("create cluster: %w", err)
	}
	defer func() { _ = d.Close() }()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("create cluster: %w", err)
	}
	return nil
}

// command runs a program of the server in the cluster's folder, with nothing of
// our environment but the search paths: no PG* variable may steer it, and none
// of our secrets reaches it.
func (c cluster) command(ctx context.Context, path string, who *account, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = c.dir
	cmd.SysProcAttr = who.attr()
	cmd.Env = []string{"LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	for _, name := range []string{"LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TZDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	return cmd
}

// readPassword is an error of its own kind, since a cluster without its password
// cannot be opened by us any more.
func (c cluster) readPassword() (string, error) {
	b, err := os.ReadFile(c.password())
	if err != nil {
		return "", fmt.Errorf("read password of cluster: %w", err)
	}
	if len(b) == 0 {
		return "", fmt.Errorf("read password of cluster: %s is empty", c.password())
	}
	return string(b), nil
}

// postmaster is what a running server writes of itself into postmaster.pid. The
// zero value is no server.
type postmaster struct {
	pid   int
	port  int
	state string // "starting", "ready", "stopping"
}

func (c cluster) postmaster() postmaster {
	text, err := os.ReadFile(c.pidFile())
	if err != nil {
		return postmaster{}
	}
	return parsePostmaster(string(text))
}

// parsePostmaster reads the lines by their numbers in PostgreSQL's pidfile.h. The
// server writes them one after another, so the later ones may not be there yet.
func parsePostmaster(text string) postmaster {
	lines := strings.Split(text, "\n")
	line := func(n int) string {
		if n > len(lines) {
			return ""
		}
		return strings.TrimSpace(lines[n-1])
	}
	pid, err := strconv.Atoi(line(1))
	if err != nil || pid <= 0 {
		return postmaster{}
	}
	port, _ := strconv.ParseUint(line(4), 10, 16)
	return postmaster{pid: pid, port: int(port), state: line(8)}
}

// openLog returns the log for a new run, and where that run's text begins.
func (c cluster) openLog() (*os.File, int64, error) {
	if info, err := os.Stat(c.logFile()); err == nil && info.Size() > logLimit {
		if err := os.Rename(c.logFile(), c.logFile()+".1"); err != nil {
			return nil, 0, fmt.Errorf("move log aside: %w", err)
		}
	}
	f, err := os.OpenFile(c.logFile(), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open log: %w", err)
	}
	at, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		_ = f.Close()
		return nil, 0, fmt.Errorf("open log: %w", err)
	}
	return f, at, nil
}

// said is the end of what the server logged since offset from, on one line.
func (c cluster) said(from int64) string {
	f, err := os.Open(c.logFile())
	if err != nil {
		return "(no log)"
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err == nil {
		from = max(from, info.Size()-quotedBytes)
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return "(no log)"
	}
	b, _ := io.ReadAll(io.LimitReader(f, quotedBytes))
	return lastBytes(string(b))
}

// lastBytes trims text for an error: its last lines, joined by " | ".
func lastBytes(text string) string {
	text = strings.TrimSpace(text[max(0, len(text)-quotedBytes):])
	if text == "" {
		return "(nothing logged)"
	}
	return strings.ReplaceAll(text, "\n", " | ")
}
