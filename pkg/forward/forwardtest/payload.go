package forwardtest

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
)

func cancelledReading(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	d := Document(300_000)
	whole := d.Open
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
	out, asked := send(ctx, t, p, d)
	want(t, out, delivery.Interrupted)
	if asked != 0 {
		t.Error("Proceed was asked")
	}
	wantStored(t, p)
	d.Open = whole
	out, _ = send(t.Context(), t, p, d)
	want(t, out, delivery.Accepted)
	wantStored(t, p, d)
	wantTidy(t, p)
}

// notDelivered forwards a document whose payload is at fault.
func notDelivered(t *testing.T, p Peer, d forward.Document, code string) {
	t.Helper()
	out, asked := send(t.Context(), t, p, d)
	want(t, out, delivery.Refused)
	if out.Answer.Code != code || out.Answer.Phase != forward.PhasePayload || out.Server || !out.Answer.Category.Retryable() {
		t.Errorf("want a transient %s that is not the server's fault: %+v", code, out)
	}
	if asked != 0 {
		t.Error("Proceed was asked")
	}
	wantStored(t, p)
	wantTidy(t, p)
}

func unopened(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	d := Document(small)
	d.Open = func(context.Context) (io.ReadCloser, error) { return nil, errors.New("the store is away") }
	notDelivered(t, p, d, forward.CodePayload)
}

func brokenOff(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	for _, size := range []int{small, 300_000} {
		d := Document(size)
		open := d.Open
		d.Open = func(ctx context.Context) (io.ReadCloser, error) {
			src, _ := open(ctx)
			return io.NopCloser(io.MultiReader(io.LimitReader(src, d.Size-1), reading{read: func([]byte) (int, error) {
				return 0, errors.New("the disk is broken")
			}})), nil
		}
		notDelivered(t, p, d, forward.CodePayload)
	}
}

func mismatched(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	for _, size := range []int{1, 2, small, 300_000} {
		d := Document(size)
		d.Size++
		notDelivered(t, p, d, forward.CodePayloadMismatch) // cut short
		if d.Size -= 2; d.Size > 0 {
			notDelivered(t, p, d, forward.CodePayloadMismatch) // too long
		}
		d.Size++
		d.SHA256[31] ^= 1
		notDelivered(t, p, d, forward.CodePayloadMismatch) // another
	}
}
