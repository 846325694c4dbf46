package filesystem_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/filesystem"
	"github.com/posthouse-io/posthouse/pkg/forward/forwardtest"
)

// folder is a place with a guarded neighbourhood.
type folder struct{ outside, dir string }

func newFolder(t *testing.T) folder {
	t.Helper()
	outside := t.TempDir()
	dir := filepath.Join(outside, "a", "b", "in")
	if err := os.MkdirAll(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	return folder{outside, dir}
}

// files gives the files below the folder whose names do not start with a dot, and
// all others.
func (f folder) files(t *testing.T) (stored []forwardtest.Stored, litter []string) {
	t.Helper()
	err := filepath.WalkDir(f.outside, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(f.dir, path)
		if err != nil {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(name, "..") {
			litter = append(litter, name)
			return nil
		}
		if strings.HasSuffix(name, ".json") || e.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		sum := sha256.New()
		n, err := io.Copy(sum, file)
		stored = append(stored, forwardtest.Stored{Name: name, Size: n, SHA256: [32]byte(sum.Sum(nil))})
		return err
	})
	// A hidden file may go while we walk.
	if err != nil && !os.IsNotExist(err) {
		t.Error(err)
	}
	return stored, litter
}

func config(dir, layout string) filesystem.Config {
	return filesystem.Config{Directory: dir, Layout: layout, Pattern: "{sbdh-instance-id}_{incoming-id}", WriteMetadata: true, Timeout: 20 * time.Second}
}

func open(t *testing.T, c filesystem.Config) forward.Forwarder {
	t.Helper()
	f, err := filesystem.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestSuite(t *testing.T) {
	for _, layout := range []string{filesystem.Flat, filesystem.PerTransaction, filesystem.ByDate, filesystem.ByReceiver} {
		t.Run(layout, func(t *testing.T) {
			forwardtest.Suite(t, forwardtest.Fixture{
				Moods: []forwardtest.Mood{forwardtest.Refusing, forwardtest.Away},
				New: func(t *testing.T, m forwardtest.Mood) forwardtest.Peer {
					f := newFolder(t)
					p := forwardtest.Peer{
						Forwarder: open(t, config(f.dir, layout)),
						Stored:    func() []forwardtest.Stored { s, _ := f.files(t); return s },
						Litter:    func() []string { _, l := f.files(t); return l },
					}
					switch m {
					case forwardtest.Away:
						if err := os.Remove(f.dir); err != nil {
							t.Fatal(err)
						}
					case forwardtest.Refusing:
						// A folder stands where the file should be.
						p.Alter = func(d *forward.Document) {
							name := filepath.Join(f.dir, place(layout, d), d.SBDHInstanceID+"_"+d.ID.String()+".xml")
							if err := os.MkdirAll(name, 0o750); err != nil {
								t.Error(err)
							}
						}
						p.Litter = nil // the sidecar is no document
					}
					return p
				},
			})
		})
	}
}

func place(layout string, d *forward.Document) string {
	switch layout {
	case filesystem.PerTransaction:
		return d.ID.String()
	case filesystem.ByDate:
		return "2026/11/03"
	case filesystem.ByReceiver:
		return strings.ReplaceAll(d.ReceiverID, ":", "%3A")
	}
	return "."
}

func TestLayouts(t *testing.T) {
	t.Parallel()
	for _, layout := range []string{filesystem.Flat, filesystem.PerTransaction, filesystem.ByDate, filesystem.ByReceiver} {
		f := newFolder(t)
		d := forwardtest.Document(100)
		out := open(t, config(f.dir, layout)).Forward(t.Context(), d)
		want := filepath.Join(place(layout, &d), d.SBDHInstanceID+"_"+d.ID.String())
		if out.Verdict != delivery.Accepted || out.RemoteID != want+".xml" || out.Confirmed {
			t.Errorf("%s: %+v, want %s", layout, out, want)
		}
		b, err := os.ReadFile(filepath.Join(f.dir, want+".json"))
		if err != nil {
			t.Fatal(err)
		}
		var m forward.Metadata
		if err := json.Unmarshal(b, &m); err != nil || m.ID != d.ID || m.Size != 100 || m.ReceiverID != d.ReceiverID {
			t.Errorf("%s: %v %s", layout, err, b)
		}
	}
}

// What a killed process left behind goes with the next attempt, and only what is
// of the same document.
func TestSweep(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	d := forwardtest.Document(100)
	mine, other := ".posthouse-"+d.ID.String()+"-abc.tmp", ".posthouse-"+delivery.NewID().String()+"-abc.tmp"
	for _, n := range []string{mine, other} {
		if err := os.WriteFile(filepath.Join(f.dir, n), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d.Attempt = 2
	if out := open(t, config(f.dir, filesystem.Flat)).Forward(t.Context(), d); out.Verdict != delivery.Accepted {
		t.Fatalf("%+v", out)
	}
	if _, litter := f.files(t); len(litter) != 1 || litter[0] != other {
		t.Errorf("left: %q", litter)
	}
}

// A symbolic link in the folder leads nowhere.
func TestLinksAreNotFollowedOutside(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	d := forwardtest.Document(100)
	if err := os.Symlink(f.outside, filepath.Join(f.dir, strings.ReplaceAll(d.ReceiverID, ":", "%3A"))); err != nil {
		t.Fatal(err)
	}
	out := open(t, config(f.dir, filesystem.ByReceiver)).Forward(t.Context(), d)
	if out.Verdict != delivery.Refused {
		t.Errorf("%+v", out)
	}
	if stored, litter := f.files(t); len(stored) != 0 || len(litter) != 0 {
		t.Errorf("%v %q", stored, litter)
	}
}

// The time-out ends a forward whose payload does not come.
func TestTimeout(t *testing.T) {
	t.Parallel()
	f := newFolder(t)
	cfg := config(f.dir, filesystem.Flat)
	cfg.Timeout = 20 * time.Millisecond
	d := forwardtest.Document(100)
	d.Open = func(ctx context.Context) (io.ReadCloser, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	out := open(t, cfg).Forward(t.Context(), d)
	if out.Verdict != delivery.Refused || out.Answer.Code != forward.CodeTimeout || out.Server {
		t.Errorf("%+v", out)
	}
}

func TestConfigNamesEachFault(t *testing.T) {
	t.Parallel()
	err := filesystem.Config{Directory: "in", Layout: "round", Pattern: "x"}.Check()
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{"_DIRECTORY", "_LAYOUT", "_FILENAME_PATTERN", "_TIMEOUT"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
}
