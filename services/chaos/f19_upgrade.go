package chaos

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/migrations"
)

// upgradeFaults is F19: the programs of an earlier commit on the schema of then; the
// schema is migrated under load; old and new work side by side; the old ones go.
func upgradeFaults() []Scenario {
	return []Scenario{{
		Name: "F19", Fault: "the schema is migrated under load, old and new programs side by side, then rolling upgrade", Load: Load{Rate: 40, Make: mixedMail}, Config: Config{Senders: 2},
		Rules: Rules{NoDuplicates: true, NoUnknown: true}, Ground: earlier, Do: upgrade,
	}}
}

// earlier builds the programs of an earlier commit and says how far its schema goes.
func earlier(ctx context.Context, cfg *Config, o Options) (undo func() error, err error) {
	rev := o.Old
	if rev == "" {
		rev = "HEAD~1"
	}
	dir, err := os.MkdirTemp(o.Parent, "posthouse-earlier-")
	if err != nil {
		return nil, fmt.Errorf("earlier commit: %w", err)
	}
	remove := func() error { return os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			undo, err = nil, errors.Join(fmt.Errorf("earlier commit %s: %w", rev, err), remove())
		}
	}()
	root, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return nil, fmt.Errorf("this is no working tree of git: %w", err)
	}
	archive := exec.CommandContext(ctx, "git", "archive", rev)
	archive.Dir = strings.TrimSpace(string(root))
	text, err := archive.Output()
	if err != nil {
		return nil, err
	}
	tree := filepath.Join(dir, "tree")
	if err = unpack(bytes.NewReader(text), tree); err != nil {
		return nil, err
	}
	steps, err := filepath.Glob(filepath.Join(tree, "migrations", "sql", "*.sql"))
	if err != nil || len(steps) == 0 {
		return nil, errors.Join(err, errors.New("it has no schema"))
	}
	if _, err = fmt.Sscanf(filepath.Base(steps[len(steps)-1]), "%d", &cfg.Schema); err != nil {
		return nil, err
	}
	cfg.earlier = filepath.Join(dir, "bin")
	if err = os.Mkdir(cfg.earlier, 0o755); err != nil {
		return nil, err
	}
	return remove, Build(ctx, cfg.earlier, tree, false)
}

// unpack writes a tar of regular files below dir.
func unpack(from io.Reader, dir string) error {
	for r := tar.NewReader(from); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg || !filepath.IsLocal(h.Name) {
			continue
		}
		path := filepath.Join(dir, h.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		f, err := os.Create(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(f, r)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
}

func upgrade(ctx context.Context, r *Run) error {
	if err := r.Acknowledged(ctx, 100); err != nil {
		return err
	}
	r.note("the schema goes from %d to %d", r.cfg.Schema, migrations.Newest())
	if _, err := migrations.Up(ctx, r.databaseURL); err != nil {
		return err
	}
	if err := r.Acknowledged(ctx, 100); err != nil { // the old ones on the new schema
		return err
	}
	for _, v := range r.Services {
		if err := v.Term(); err != nil {
			return err
		}
		r.note("%s is new", v.Name)
		v.use(r.cfg.Bin)
		if err := v.Start(); err != nil {
			return err
		}
		if err := r.Acknowledged(ctx, 100); err != nil { // old and new side by side
			return err
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	return nil
}
