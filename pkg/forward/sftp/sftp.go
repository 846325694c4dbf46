package sftp

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
)

// Forwarder writes documents to one SFTP server.
type Forwarder struct {
	cfg        Config
	pattern    forward.Pattern
	auth       []ssh.AuthMethod
	check      ssh.HostKeyCallback
	algorithms []string
	gate       forward.Gate
	shelf      shelf
}

// New checks the configuration and reads the keys; it connects to nothing yet.
func New(cfg Config) (*Forwarder, error) {
	key, err := cfg.inspect()
	if err != nil {
		return nil, fmt.Errorf("sftp forwarder: %w", err)
	}
	f := &Forwarder{cfg: cfg}
	f.pattern, _ = forward.ParsePattern(cfg.Pattern) // looked at by Check
	if f.check, f.algorithms, err = cfg.trust(); err != nil {
		return nil, fmt.Errorf("sftp forwarder: %w", err)
	}
	if key != nil {
		f.auth = append(f.auth, ssh.PublicKeys(key))
	}
	if cfg.Password != "" {
		f.auth = append(f.auth, ssh.Password(cfg.Password), ssh.KeyboardInteractive(cfg.answer))
	}
	return f, nil
}

// answer gives the password to a server that asks for it in a dialogue of one
// hidden question, as many do; any other question gets nothing.
func (c Config) answer(_, _ string, questions []string, echo []bool) ([]string, error) {
	if len(questions) == 0 {
		return nil, nil
	}
	if len(questions) != 1 || echo[0] {
		return nil, errors.New("the server asks for more than the password")
	}
	return []string{c.Password}, nil
}

func authFailed(err error) bool {
	// The library has no type for it on the client's side.
	return strings.Contains(err.Error(), "unable to authenticate")
}

// Close waits for the forwards in progress and ends the kept sessions.
func (f *Forwarder) Close() error {
	f.gate.Close()
	f.shelf.close()
	return nil
}

// Forward is forward.Forwarder.
func (f *Forwarder) Forward(ctx context.Context, d forward.Document) forward.Outcome {
	if out, ok := f.gate.Enter(ctx, &d); !ok {
		return out
	}
	defer f.gate.Leave()
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()

	if kept := f.shelf.take(f.cfg.IdleTimeout); kept != nil {
		// A kept session may have died unseen. One question tells, and costs a round
		// trip; a document would cost more.
		if f.alive(ctx, kept) {
			return f.over(ctx, &d, kept)
		}
		kept.end()
	}
	fresh, err := f.open(ctx)
	if err != nil {
		if out, over := forward.Ended(ctx, forward.PhaseDial); over {
			out.Remote = f.cfg.address()
			return out
		}
		out := refused(f.hide(err))
		out.Remote = f.cfg.address()
		return out
	}
	return f.over(ctx, &d, fresh)
}

func (f *Forwarder) alive(ctx context.Context, s *session) bool {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ConnectTimeout)
	defer cancel()
	unwatch := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	defer unwatch()
	_, err := s.files.Lstat(f.cfg.Directory)
	var status *sftp.StatusError
	return err == nil || errors.As(err, &status) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission)
}

// over forwards over one session and keeps it when it is still good.
func (f *Forwarder) over(ctx context.Context, d *forward.Document, s *session) forward.Outcome {
	unwatch := context.AfterFunc(ctx, func() { _ = s.conn.Close() })
	t := try{Forwarder: f, session: s}
	for _, name := range f.shelf.takeLitter() {
		t.remove(name)
	}
	out := t.place(ctx, d)
	out.Remote = s.remote
	if unwatch() && !t.broken {
		f.shelf.give(s)
	} else {
		s.end()
	}
	return out
}

// hide blots out our secrets, which a server may repeat.
func (f *Forwarder) hide(err error) error {
	text := err.Error()
	for _, s := range []string{f.cfg.Password, f.cfg.Passphrase} {
		if s != "" {
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	return cleaned{err, text}
}

// cleaned is an error with another text.
type cleaned struct {
	err  error
	text string
}

func (c cleaned) Error() string { return c.text }
func (c cleaned) Unwrap() error { return c.err }

// try is one document over one session.
type try struct {
	*Forwarder
	*session
	broken bool // the session must not be used again
}

// place writes the files and lets them appear, the sidecar first.
func (t *try) place(ctx context.Context, d *forward.Document) forward.Outcome {
	name := path.Join(t.cfg.Directory, t.pattern.Name(d))
	var sidecar string
	var description []byte
	if t.cfg.WriteMetadata {
		var err error
		if description, err = d.Sidecar(); err == nil {
			sidecar, err = t.write(d, bytes.NewReader(description), int64(len(description)))
		}
		defer t.discard(&sidecar)
		if err != nil {
			return t.failed(ctx, err)
		}
	}
	payload, err := forward.Open(ctx, d, nil)
	if err != nil {
		return forward.Blame(ctx, err)
	}
	document, err := t.write(d, payload, d.Size)
	defer t.discard(&document)
	if cerr := payload.Close(); err == nil && cerr != nil {
		return forward.Blame(ctx, cerr)
	}
	if fault := payload.Failure(); fault != nil {
		return forward.Blame(ctx, fault)
	}
	if err != nil {
		return t.failed(ctx, err)
	}
	if out, over := forward.Ended(ctx, forward.PhaseUpload); over {
		return out
	}
	if err := d.Proceed(); err != nil {
		return forward.Interrupted(forward.PhaseUpload, err)
	}
	if sidecar != "" {
		// No step yet that cannot be taken back: nobody takes a description for the
		// document.
		if err := t.appear(&sidecar, name+".json", int64(len(description))); err != nil {
			return t.failed(ctx, err)
		}
	}
	return t.final(ctx, d, &document, name+".xml")
}

// final renames the document and looks at what is there afterwards.
func (t *try) final(ctx context.Context, d *forward.Document, hidden *string, name string) forward.Outcome {
	err := t.appear(hidden, name, d.Size)
	var status *sftp.StatusError
	switch {
	case err == nil:
	case errors.As(err, &status) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
		return t.failed(ctx, err) // the server has answered, and it is a no
	case ctx.Err() != nil:
		t.broken = true
		return forward.Unsure(forward.CodeTimeout, "no answer to the rename in time")
	default:
		t.broken = true
		return forward.Unsure(forward.CodeLost, forward.Reason(t.hide(err)))
	}
	// A watcher may have taken it away by now: only another size is wrong.
	if info, err := t.files.Stat(name); err == nil && info.Size() != d.Size {
		return forward.Unsure(forward.CodeStorage, fmt.Sprintf("the file has %d bytes instead of %d", info.Size(), d.Size))
	}
	return forward.Delivered("", name)
}

// write fills a new hidden file and compares its size. The name is returned also
// with an error, when there is something to remove.
func (t *try) write(d *forward.Document, r io.Reader, size int64) (string, error) {
	name := path.Join(t.cfg.Directory, ".posthouse-"+d.ID.String()+"-"+strings.ToLower(rand.Text()[:12])+".tmp")
	file, err := t.files.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return "", fmt.Errorf("create: %w", err)
	}
	_, err = file.ReadFrom(r)
	if _, can := t.files.HasExtension(fsync); err == nil && can {
		err = file.Sync()
	}
	var info fs.FileInfo
	if err == nil {
		info, err = file.Stat()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	if err == nil && info.Size() != size {
		err = fmt.Errorf("the file has %d bytes instead of %d", info.Size(), size)
	}
	if err != nil {
		err = fmt.Errorf("write: %w", err)
	}
	return name, err
}

// appear gives a hidden file its name.
func (t *try) appear(hidden *string, name string, size int64) error {
	if _, can := t.files.HasExtension(posixRename); can {
		if err := t.files.PosixRename(*hidden, name); err != nil {
			return fmt.Errorf("rename: %w", err)
		}
		*hidden = ""
		return nil
	}
	// Here a rename onto a file that exists fails.
	info, err := t.files.Lstat(name)
	switch {
	case err == nil && info.Mode().IsRegular() && info.Size() == size:
		return nil // of an earlier attempt; the hidden file is not needed
	case err == nil:
		err = t.files.Remove(name)
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	}
	if err == nil {
		err = t.files.Rename(*hidden, name)
	}
	if err != nil {
		return fmt.Errorf("rename: %w", err)
	}
	*hidden = ""
	return nil
}

// failed is the outcome of an error before the rename.
func (t *try) failed(ctx context.Context, err error) forward.Outcome {
	var status *sftp.StatusError
	if !errors.As(err, &status) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		t.broken = true
	}
	if out, over := forward.Ended(ctx, forward.PhaseUpload); over {
		return out
	}
	out := refused(t.hide(err))
	if !t.broken {
		out.Answer.Category, out.Server = delivery.Transient, true
	}
	return out
}

// discard removes a hidden file of this try, now or over a later session.
func (t *try) discard(name *string) {
	if *name != "" {
		t.remove(*name)
	}
}

func (t *try) remove(name string) {
	err := t.files.Remove(name)
	var status *sftp.StatusError
	if err != nil && !errors.As(err, &status) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		t.shelf.forget(name)
	}
}

var _ forward.Forwarder = (*Forwarder)(nil)
