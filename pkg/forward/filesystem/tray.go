package filesystem

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

const (
	folderMode = 0o750
	fileMode   = 0o640
	hidden     = ".posthouse-"
	unfinished = ".tmp"
)

// tray is the place of one document while it is being written: hidden files in
// the folder where they will appear, since only there a rename is sure to be one.
type tray struct {
	root   *os.Root
	folder string
	id     string
}

func (t tray) writeAll(b []byte) (string, error) { return t.write(bytes.NewReader(b)) }

// write fills a new hidden file, down to the disk. The name is returned also with
// an error, when there is something to remove.
func (t tray) write(r io.Reader) (string, error) {
	name := path.Join(t.folder, hidden+t.id+"-"+strings.ToLower(rand.Text()[:12])+unfinished)
	file, err := t.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(writer{file}, r)
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	return name, err
}

// writer hides ReadFrom, so that io.Copy goes piece by piece and ctx is seen in
// between.
type writer struct{ io.Writer }

// appear gives a hidden file its name; from then on it is not ours to remove.
func (t tray) appear(name *string, final string) error {
	if err := t.root.Rename(*name, path.Join(t.folder, final)); err != nil {
		return err
	}
	*name = ""
	return nil
}

// remove takes a hidden file away. What stays is hidden and is swept later.
func (t tray) remove(name *string) {
	if *name != "" {
		_ = t.root.Remove(*name)
	}
}

// sweep removes what earlier tries of this document left behind. If one of them
// still runs it has lost its lease, and finds its file gone.
func (t tray) sweep() error {
	folder, err := t.root.Open(t.folder)
	if err != nil {
		return err
	}
	defer folder.Close() // only read
	for {
		names, err := folder.Readdirnames(1000)
		for _, n := range names {
			if !strings.HasPrefix(n, hidden+t.id+"-") || !strings.HasSuffix(n, unfinished) {
				continue
			}
			if err := t.root.Remove(path.Join(t.folder, n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// mkdir makes a folder and its parents, each of them durable.
func mkdir(root *os.Root, folder string) error {
	if folder == "." {
		return nil
	}
	made := "."
	for part := range strings.SplitSeq(folder, "/") {
		parent := made
		made = path.Join(made, part)
		switch err := root.Mkdir(made, folderMode); {
		case err == nil:
			if err := syncFolder(root, parent); err != nil {
				return err
			}
		case errors.Is(err, fs.ErrExist):
			info, err := root.Stat(made)
			if err != nil {
				return err
			}
			if !info.IsDir() {
				return fmt.Errorf("%s is not a folder", parent)
			}
		default:
			return err
		}
	}
	return nil
}

func syncFolder(root *os.Root, folder string) error {
	d, err := root.Open(folder)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}
