package forwardtest

import (
	"context"
	"crypto/sha256"
	"io"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

func leavesNoGoroutine(t *testing.T, f Fixture) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // runs after the fixture's own
	p := start(t, f, Friendly)
	for range 3 {
		out, _ := send(t.Context(), t, p, Document(small))
		want(t, out, delivery.Accepted)
	}
	d := Document(300_000)
	waits := make(chan struct{}, 1)
	stall(&d, waits)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		select {
		case <-waits:
			cancel()
		case <-ctx.Done():
		}
	}()
	send(ctx, t, p, d)
}

// large forwards 50 MB that exist nowhere, and looks at the heap while they flow.
func large(t *testing.T, f Fixture) {
	const step, allowed = 4 << 20, 16 << 20
	size := int64(50 << 20)
	if f.MaxSize > 0 {
		size = min(size, f.MaxSize)
	}
	d := blank()
	d.Size = size
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(endless(), size)); err != nil {
		t.Fatal(err)
	}
	d.SHA256 = [32]byte(sum.Sum(nil))
	p := start(t, f, Friendly)
	// The first document pays for what is made only once.
	out, _ := send(t.Context(), t, p, Document(300_000))
	want(t, out, delivery.Accepted)

	base, high := heap(), uint64(0)
	d.Open = func(context.Context) (io.ReadCloser, error) {
		src, read := io.LimitReader(endless(), size), 0
		return reading{read: func(b []byte) (int, error) {
			n, err := src.Read(b)
			if (read+n)/step != read/step {
				high = max(high, heap())
			}
			read += n
			return n, err
		}}, nil
	}
	out, _ = send(t.Context(), t, p, d)
	want(t, out, delivery.Accepted)
	limit := uint64(allowed)
	if f.Memory > 0 {
		limit = uint64(f.Memory)
	}
	if high > base+limit {
		t.Errorf("%d bytes of the heap for a document of %d", high-base, size)
	}
	t.Logf("heap at its highest: %.1f MiB above %.1f MiB", float64(int64(high)-int64(base))/(1<<20), float64(base)/(1<<20))
	found := false
	for _, s := range p.Stored() {
		found = found || s.SHA256 == d.SHA256 && s.Size == size
	}
	if !found {
		t.Error("the backend lacks the large document")
	}
	wantTidy(t, p)
}

// pattern is an endless text, the same for whoever reads it.
type pattern struct {
	piece []byte // its length is prime, so that no block looks like the one before
	at    int
}

func endless() *pattern {
	piece := make([]byte, 65521)
	for i := range piece {
		piece[i] = byte(i) | byte(i>>8)
	}
	return &pattern{piece: piece}
}

func (p *pattern) Read(b []byte) (int, error) {
	n := copy(b, p.piece[p.at:])
	p.at = (p.at + n) % len(p.piece)
	return n, nil
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
