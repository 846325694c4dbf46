package forwardtest

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
)

const small = 20_000

func (f Fixture) asks() int { return max(f.Asks, 1) }

func delivered(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	var all []forward.Document
	for _, size := range []int{1, 2, 1000, small, 300_000} { // the later ones over a kept connection
		d := Document(size)
		before, first := len(p.Stored()), true
		d.Proceed = func() error {
			if first && len(p.Stored()) != before {
				t.Error("the document was there before Proceed was asked")
			}
			first = false
			return nil
		}
		out, asked := send(t.Context(), t, p, d)
		want(t, out, delivery.Accepted)
		if asked != f.asks() {
			t.Errorf("Proceed was asked %d times", asked)
		}
		if out.Remote == "" {
			t.Error("the outcome does not name the backend")
		}
		all = append(all, d)
		wantStored(t, p, all...)
	}
	wantTidy(t, p)
}

func repeated(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	d := Document(small)
	for d.Attempt = 1; d.Attempt <= 3; d.Attempt++ {
		out, _ := send(t.Context(), t, p, d)
		want(t, out, delivery.Accepted)
		wantStored(t, p, d)
	}
	wantTidy(t, p)
}

func doubled(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	d := Document(300_000)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if out, _ := send(t.Context(), t, p, d); out.Verdict != delivery.Accepted && out.Verdict != delivery.Refused {
				t.Errorf("%+v", out)
			}
		})
	}
	wg.Wait()
	wantStored(t, p, d)
	wantTidy(t, p)
}

func proceedStops(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	d := Document(300_000)
	d.Proceed = func() error { return errors.New("the lease is gone") }
	out, asked := send(t.Context(), t, p, d)
	want(t, out, delivery.Interrupted)
	if asked != 1 {
		t.Errorf("Proceed was asked %d times", asked)
	}
	wantStored(t, p)
	wantTidy(t, p)
	d.Proceed = func() error { return nil } // and the next one is not harmed
	out, _ = send(t.Context(), t, p, d)
	want(t, out, delivery.Accepted)
	wantStored(t, p, d)
}

// unasked is a document that nothing may be done with.
func unasked(t *testing.T) forward.Document {
	d := Document(small)
	d.Open = func(context.Context) (io.ReadCloser, error) {
		t.Error("the payload was opened")
		return nil, errors.New("no")
	}
	d.Proceed = func() error {
		t.Error("Proceed was asked")
		return nil
	}
	return d
}

func cancelledBefore(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	out, _ := send(ctx, t, p, unasked(t))
	want(t, out, delivery.Interrupted)
	wantStored(t, p)
}

func timedOutBefore(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	out, _ := send(ctx, t, p, unasked(t))
	want(t, out, delivery.Refused)
	if !out.Answer.Category.Retryable() {
		t.Errorf("a time-out would be final: %s", out.Answer.Category)
	}
	wantStored(t, p)
}

func incomplete(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	for name, alter := range map[string]func(*forward.Document){
		"no id":      func(d *forward.Document) { d.ID = delivery.ID{} },
		"no attempt": func(d *forward.Document) { d.Attempt = 0 },
		"no time":    func(d *forward.Document) { d.ReceivedAt = time.Time{} },
		"no size":    func(d *forward.Document) { d.Size = 0 },
		"no Open":    func(d *forward.Document) { d.Open = nil },
		"no Proceed": func(d *forward.Document) { d.Proceed = nil },
		"bad issues": func(d *forward.Document) { d.Issues = []byte("{") },
	} {
		d := Document(10)
		alter(&d)
		out, asked := send(t.Context(), t, p, d)
		if out.Verdict != delivery.Refused || out.Answer.Category.Retryable() || asked != 0 {
			t.Errorf("%s: %+v, asked %d", name, out, asked)
		}
	}
	wantStored(t, p)
}

func hostileIDs(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	var all []forward.Document
	for _, id := range []string{
		"", ".", "..", "/", "../../../../etc/passwd", "/etc/passwd", `..\..\x`, "a/b", "a\x00b", "a\r\nX-Evil: 1", "a\nb", "~", "~root", "-rf",
		".hidden", "%2e%2e%2f", "{incoming-id}", "ü\xff\xfe", "\u202e\u2028", "con", "*", "?q#f", "same", "same", "a b", strings.Repeat("x", 5000), strings.Repeat("/", 300),
	} {
		d := Document(100)
		d.SBDHInstanceID, d.AS4MessageID, d.SenderID, d.ReceiverID, d.DocTypeID, d.ProcessID, d.C1Country, d.Verdict = id, id, id, id, id, id, id, id
		d.Traceparent = id
		out, _ := send(t.Context(), t, p, d)
		if out.Verdict != delivery.Accepted {
			t.Errorf("%.40q: %+v", id, out)
		}
		all = append(all, d)
	}
	wantStored(t, p, all...)
	wantTidy(t, p)
	var names []string
	for _, s := range p.Stored() {
		names = append(names, s.Name)
		if slices.Contains(strings.Split(s.Name, "/"), "..") {
			t.Errorf("%q leaves its folder", s.Name)
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(all) {
		t.Error("two documents have one name")
	}
}

func concurrent(t *testing.T, f Fixture) {
	const workers, each = 6, 4
	p := start(t, f, Friendly)
	var mu sync.Mutex
	var all []forward.Document
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				d := Document(small)
				if out, asked := send(t.Context(), t, p, d); out.Verdict != delivery.Accepted || asked != f.asks() {
					t.Errorf("%+v, asked %d times", out, asked)
				}
				mu.Lock()
				all = append(all, d)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	wantStored(t, p, all...)
	wantTidy(t, p)
}

func closeWaits(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	d := Document(300_000)
	waits := make(chan struct{}, 1)
	stall(&d, waits)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		send(ctx, t, p, d)
	}()
	select {
	case <-waits:
	case <-sent:
		t.Fatal("the payload was not read")
	}
	closed := make(chan error, 1)
	go func() { closed <- p.Forwarder.Close() }()
	select {
	case <-closed:
		t.Error("Close returned while a forward was in progress")
	case <-time.After(50 * time.Millisecond): // as long as one can show a thing not to happen
		cancel()
		select {
		case err := <-closed:
			if err != nil {
				t.Errorf("Close: %v", err)
			}
		case <-time.After(patience):
			t.Error("Close does not return after the last forward")
		}
	}
	cancel()
	<-sent
}

func closeTwice(t *testing.T, f Fixture) {
	p := start(t, f, Friendly)
	d := Document(small)
	out, _ := send(t.Context(), t, p, d)
	want(t, out, delivery.Accepted)
	closeSoon(t, p.Forwarder)
	closeSoon(t, p.Forwarder)
	out, _ = send(t.Context(), t, p, unasked(t))
	want(t, out, delivery.Interrupted)
	wantStored(t, p, d)
}

func refused(t *testing.T, f Fixture) {
	p := start(t, f, Refusing)
	for range 2 {
		out, asked := send(t.Context(), t, p, Document(small))
		want(t, out, delivery.Refused)
		if asked > 1 {
			t.Errorf("Proceed was asked %d times", asked)
		}
	}
	wantStored(t, p)
	wantTidy(t, p)
}

func babbled(t *testing.T, f Fixture) {
	p := start(t, f, Babbling)
	out, _ := send(t.Context(), t, p, Document(small)) // always checks the texts
	want(t, out, delivery.Refused)
}

func silent(t *testing.T, f Fixture) {
	p := start(t, f, Silent)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	d := Document(small)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		out, asked := send(ctx, t, p, d)
		if out.Verdict != delivery.Unknown || asked < 1 {
			t.Errorf("asked %d times: %+v", asked, out)
		}
	}()
	eventually(t, "the backend takes the document", func() bool { return len(p.Stored()) == 1 })
	cancel() // too late to call it back
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the end of ctx does not end the forward")
	}
	wantStored(t, p, d)
}

func gone(t *testing.T, f Fixture) {
	p := start(t, f, Gone)
	d := Document(small)
	out, asked := send(t.Context(), t, p, d)
	want(t, out, delivery.Unknown)
	if asked != f.asks() {
		t.Errorf("Proceed was asked %d times: a repeat inside", asked)
	}
	wantStored(t, p, d)
}

func away(t *testing.T, f Fixture) {
	p := start(t, f, Away)
	for range 2 {
		out, asked := send(t.Context(), t, p, Document(small))
		want(t, out, delivery.Refused)
		if !out.Answer.Category.Retryable() || !out.Server {
			t.Errorf("want a transient fault of the server: %+v", out)
		}
		if asked != 0 {
			t.Error("Proceed was asked")
		}
	}
}
