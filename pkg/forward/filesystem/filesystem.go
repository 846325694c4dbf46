package filesystem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
)

// Forwarder writes documents below one folder.
type Forwarder struct {
	cfg     Config
	pattern forward.Pattern
	gate    forward.Gate
}

// New checks the configuration. The folder is opened at each forward, so one
// that is mounted later is found.
func New(cfg Config) (*Forwarder, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("filesystem forwarder: %w", err)
	}
	pattern, _ := forward.ParsePattern(cfg.Pattern) // looked at by Check
	return &Forwarder{cfg: cfg, pattern: pattern}, nil
}

// Close waits for the forwards in progress.
func (f *Forwarder) Close() error {
	f.gate.Close()
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

	root, err := os.OpenRoot(f.cfg.Directory)
	if err != nil {
		return failed(forward.PhaseDial, err)
	}
	defer root.Close() // nothing was written through it
	folder := f.cfg.folder(&d)
	if err := mkdir(root, folder); err != nil {
		return failed(forward.PhaseDial, err)
	}
	t := tray{root: root, folder: folder, id: d.ID.String()}
	if d.Attempt > 1 {
		if err := t.sweep(); err != nil {
			return failed(forward.PhaseDial, err)
		}
	}
	out := f.place(ctx, &d, t)
	out.Remote = f.cfg.Directory
	return out
}

// place writes the files and lets them appear, the sidecar first.
func (f *Forwarder) place(ctx context.Context, d *forward.Document, t tray) forward.Outcome {
	name := f.pattern.Name(d)
	var sidecar string
	if f.cfg.WriteMetadata {
		b, err := d.Sidecar()
		if err == nil {
			sidecar, err = t.writeAll(b)
		}
		defer t.remove(&sidecar)
		if err != nil {
			return failed(forward.PhaseUpload, err)
		}
	}
	payload, err := forward.Open(ctx, d, nil)
	if err != nil {
		return forward.Blame(ctx, err)
	}
	document, err := t.write(payload)
	defer t.remove(&document)
	if cerr := payload.Close(); err == nil && cerr != nil {
		return forward.Blame(ctx, cerr)
	}
	if fault := payload.Failure(); fault != nil {
		return forward.Blame(ctx, fault)
	}
	if err != nil {
		return failed(forward.PhaseUpload, err)
	}
	if out, over := forward.Ended(ctx, forward.PhaseUpload); over {
		return out
	}
	if err := d.Proceed(); err != nil {
		return forward.Interrupted(forward.PhaseUpload, err)
	}
	if sidecar != "" {
		if err := t.appear(&sidecar, name+".json"); err != nil {
			return failed(forward.PhaseUpload, err)
		}
	}
	if err := t.appear(&document, name+".xml"); err != nil {
		return failed(forward.PhaseUpload, err)
	}
	if err := syncFolder(t.root, t.folder); err != nil {
		// It is there for everyone to see, but may not survive a loss of power.
		return forward.Unsure(forward.CodeStorage, reason(err))
	}
	return forward.Delivered("", path.Join(t.folder, name+".xml"))
}

// failed is a file system that did not do what it should.
func failed(phase delivery.Phase, err error) forward.Outcome {
	return forward.Refused(delivery.Transient, phase, forward.CodeStorage, reason(err), true)
}

// reason leaves out the path of an error: it holds ids of the sender.
func reason(err error) string {
	var p *os.PathError
	var l *os.LinkError
	switch {
	case errors.As(err, &p):
		return p.Op + ": " + p.Err.Error()
	case errors.As(err, &l):
		return l.Op + ": " + l.Err.Error()
	}
	return forward.Reason(err)
}

var _ forward.Forwarder = (*Forwarder)(nil)
