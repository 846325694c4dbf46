package forward

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

var (
	errMismatch = errors.New("the payload does not match the document")
	errStopped  = errors.New("stopped before the last byte")
	errClosed   = errors.New("the payload is closed")
)

// Payload reads a document's bytes once. It holds the last byte back until size
// and hash are right and last (if any) agrees, so whoever has read it to its end
// has the right bytes, and whoever has not lacks at least one.
//
// Libraries wrap the errors of a reader in their own; Failure tells afterwards,
// from any goroutine, whether the payload was to blame.
type Payload struct {
	reading sync.Mutex // held during Read, so that Close can wait for it

	d     *Document
	src   io.ReadCloser
	sum   hash.Hash
	given int64
	ended func() error // why ctx has ended, nil while it lives
	last  func() error

	mu       sync.Mutex
	fault    error
	released bool
	closed   bool
}

// Open starts to read. The error is for Blame.
func Open(ctx context.Context, d *Document, last func() error) (*Payload, error) {
	src, err := d.Open(ctx)
	if err != nil {
		return nil, fmt.Errorf("document %s: open: %w", d.ID, err)
	}
	return &Payload{d: d, src: src, sum: sha256.New(), ended: ctx.Err, last: last}, nil
}

// Read is io.Reader.
func (p *Payload) Read(b []byte) (int, error) {
	p.reading.Lock()
	defer p.reading.Unlock()
	p.mu.Lock()
	fault, released, closed := p.fault, p.released, p.closed
	p.mu.Unlock()
	switch {
	case fault != nil:
		return 0, fault
	case released:
		return 0, io.EOF
	case closed:
		return 0, errClosed
	}
	if len(b) == 0 {
		return 0, nil
	}
	if err := p.ended(); err != nil {
		return 0, p.fail(err)
	}
	if rest := p.d.Size - 1 - p.given; rest > 0 {
		n, err := p.src.Read(b[:min(rest, int64(len(b)))])
		p.sum.Write(b[:n])
		p.given += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			err = p.fail(fmt.Errorf("%w: it ends after %d of %d bytes", errMismatch, p.given, p.d.Size))
			return 0, err // what was read is worth nothing now
		case err != nil:
			return 0, p.fail(fmt.Errorf("read after %d bytes: %w", p.given, err))
		}
		return n, nil
	}
	return p.final(b)
}

// final gives the last byte, if everything is as it should be.
func (p *Payload) final(b []byte) (int, error) {
	var two [2]byte
	n, err := io.ReadFull(p.src, two[:])
	switch {
	case n == 2:
		return 0, p.fail(fmt.Errorf("%w: it is longer than %d bytes", errMismatch, p.d.Size))
	case n == 0 && errors.Is(err, io.EOF):
		return 0, p.fail(fmt.Errorf("%w: it ends after %d of %d bytes", errMismatch, p.given, p.d.Size))
	case !errors.Is(err, io.ErrUnexpectedEOF):
		return 0, p.fail(fmt.Errorf("read after %d bytes: %w", p.given, err))
	}
	p.sum.Write(two[:1])
	if [32]byte(p.sum.Sum(nil)) != p.d.SHA256 {
		return 0, p.fail(fmt.Errorf("%w: another SHA-256", errMismatch))
	}
	if err := p.ended(); err != nil {
		return 0, p.fail(err)
	}
	if p.last != nil {
		if err := p.last(); err != nil {
			return 0, p.fail(fmt.Errorf("%w: %w", errStopped, err))
		}
	}
	p.mu.Lock()
	p.released = true
	p.mu.Unlock()
	p.given++
	b[0] = two[0]
	return 1, nil
}

// Close waits for a Read in progress and lets no other begin: after it, Released
// and Failure do not change any more, even when a library still reads. End the
// ctx of Open first when that Read may take long. The second call does nothing.
func (p *Payload) Close() error {
	p.reading.Lock()
	defer p.reading.Unlock()
	p.mu.Lock()
	again := p.closed
	p.closed = true
	p.mu.Unlock()
	if again {
		return nil
	}
	if err := p.src.Close(); err != nil {
		return fmt.Errorf("document %s: close: %w", p.d.ID, err)
	}
	return nil
}

// Released tells whether the last byte was given away.
func (p *Payload) Released() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.released
}

// Failure is what was wrong with the payload, or what stopped it.
func (p *Payload) Failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault
}

func (p *Payload) fail(err error) error {
	err = fmt.Errorf("document %s: %w", p.d.ID, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = err
	return err
}

// Blame is the outcome of an attempt that ended because of its payload: by an
// error of Open, Failure, or a reader.
func Blame(ctx context.Context, err error) Outcome {
	switch {
	case errors.Is(err, errStopped):
		return Interrupted(PhaseUpload, err)
	case errors.Is(err, errMismatch):
		return Refused(delivery.Transient, PhasePayload, CodePayloadMismatch, Reason(err), false)
	}
	if out, over := Ended(ctx, PhasePayload); over {
		return out
	}
	return Refused(delivery.Transient, PhasePayload, CodePayload, Reason(err), false)
}
