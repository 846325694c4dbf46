package bus_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/streams"
)

func TestServeAndCall(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	nc, _ := connect(t, bus.Config{URL: b.url()})
	client, _ := connect(t, bus.Config{URL: b.url()})
	ctx := t.Context()

	var out map[string]int
	err := bus.Call(ctx, client, streams.Ops("watchdog", "lag"), nil, &out)
	if !errors.Is(err, bus.ErrNotRunning) || err.Error() != "no watchdog is running" {
		t.Fatal(err)
	}

	type question struct {
		N int `json:"n"`
	}
	heard := make(lines, 100)
	s := bus.Service{Name: "watchdog", Version: "1.2.3", Description: "looks after the others", Log: zerolog.New(heard)}
	add := func(name string, h func(context.Context, bus.Request) (any, error)) {
		s.Endpoints = append(s.Endpoints, bus.Endpoint{Name: name, Subject: streams.Ops("watchdog", name), Handle: h})
	}
	add("double", func(ctx context.Context, r bus.Request) (any, error) {
		var q question
		if err := r.Decode(&q); err != nil {
			return nil, err
		}
		if _, ok := ctx.Deadline(); !ok {
			t.Error("no deadline")
		}
		return map[string]int{"n": 2 * q.N}, nil
	})
	add("refuse", func(context.Context, bus.Request) (any, error) {
		return nil, &bus.Error{Code: "409", Text: "it is sent\r\nalready"}
	})
	add("fail", func(context.Context, bus.Request) (any, error) { return nil, errors.New("table is locked") })
	add("panic", func(context.Context, bus.Request) (any, error) { panic("secret") })
	add("large", func(context.Context, bus.Request) (any, error) { return strings.Repeat("x", 9<<20), nil })
	add("odd", func(context.Context, bus.Request) (any, error) { return make(chan int), nil })

	background, end := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- bus.Serve(background, nc, s) }()
	eventually(t, "it answers", func() bool {
		err = bus.Call(ctx, client, streams.Ops("watchdog", "double"), question{21}, &out)
		return !errors.Is(err, bus.ErrNotRunning)
	})
	if err != nil || out["n"] != 42 {
		t.Fatal(out, err)
	}
	for _, c := range []struct {
		verb       string
		in         any
		code, text string
	}{
		{"refuse", nil, "409", "it is sent"},
		{"fail", nil, "500", "internal error, see the log of watchdog"},
		{"panic", nil, "500", "internal error, see the log of watchdog"},
		{"odd", nil, "500", "internal error, see the log of watchdog"},
		{"large", nil, "500", "internal error, see the log of watchdog"},
		{"double", map[string]int{"m": 1}, "400", `unknown field "m"`},
		{"double", "x", "400", "cannot unmarshal"},
		{"double", strings.Repeat("x", 1<<20), "413", "at most"},
	} {
		err := bus.Call(ctx, client, streams.Ops("watchdog", c.verb), c.in, &out)
		var refusal *bus.Error
		if !errors.As(err, &refusal) || refusal.Code != c.code || !strings.Contains(refusal.Text, c.text) {
			t.Errorf("%s: %v, want %s %s", c.verb, err, c.code, c.text)
		}
	}
	for range 4 {
		if line := <-heard; strings.Contains(line, "secret") || !strings.Contains(line, "operation failed") {
			t.Error(line)
		}
	}
	end()
	if err := <-served; err != nil {
		t.Error(err)
	}
	eventually(t, "it is gone", func() bool {
		return errors.Is(bus.Call(ctx, client, streams.Ops("watchdog", "double"), nil, nil), bus.ErrNotRunning)
	})
}

// Two instances share the requests: each is answered once.
func TestInstancesShare(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	client, _ := connect(t, bus.Config{URL: b.url()})
	var handled atomic.Int64
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 2)
	for range 2 {
		nc, _ := connect(t, bus.Config{URL: b.url()})
		s := echo("sender")
		s.Endpoints[0].Handle = func(context.Context, bus.Request) (any, error) { return handled.Add(1), nil }
		go func() { served <- bus.Serve(ctx, nc, s) }()
	}
	var calls int64
	for calls < 20 {
		err := bus.Call(t.Context(), client, streams.Ops("sender", "echo"), nil, nil)
		if errors.Is(err, bus.ErrNotRunning) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		calls++
	}
	if handled.Load() != calls {
		t.Errorf("%d calls handled %d times", calls, handled.Load())
	}
	end()
	if err := errors.Join(<-served, <-served); err != nil {
		t.Error(err)
	}
}

// Shutdown waits for the request in progress and answers it.
func TestServeStops(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	nc, _ := connect(t, bus.Config{URL: b.url()})
	client, _ := connect(t, bus.Config{URL: b.url()})
	inside, release := make(chan struct{}), make(chan struct{})
	s := echo("sender")
	s.Endpoints[0].Handle = func(ctx context.Context, _ bus.Request) (any, error) {
		close(inside)
		<-release
		return "late", ctx.Err()
	}
	ctx, end := context.WithCancel(t.Context())
	served, called := make(chan error, 1), make(chan error, 1)
	go func() { served <- bus.Serve(ctx, nc, s) }()
	var out string
	go func() {
		for {
			if err := bus.Call(t.Context(), client, streams.Ops("sender", "echo"), nil, &out); !errors.Is(err, bus.ErrNotRunning) {
				called <- err
				return
			}
		}
	}()
	<-inside
	end()
	select {
	case <-served:
		t.Fatal("returned while a request was in progress")
	default:
	}
	close(release)
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := <-called; err != nil || out != "late" {
		t.Error(out, err)
	}
}

func TestServeFaults(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	nc, _ := connect(t, bus.Config{URL: b.url()})
	if err := bus.Serve(t.Context(), nc, bus.Service{Name: "no spaces please", Version: "1.0.0"}); err == nil {
		t.Error("a wrong name passes")
	}
	s := echo("sender")
	s.Endpoints[0].Subject = "with space"
	if err := bus.Serve(t.Context(), nc, s); err == nil {
		t.Error("a wrong subject passes")
	}
	served := make(chan error, 1)
	go func() { served <- bus.Serve(t.Context(), nc, echo("sender")) }()
	eventually(t, "it listens", func() bool { return bus.Call(t.Context(), nc, streams.Ops("sender", "echo"), "x", nil) == nil })
	nc.Close()
	if err := <-served; !errors.Is(err, nats.ErrConnectionClosed) {
		t.Error(err)
	}
}

func TestDoorbell(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	nc, _ := connect(t, bus.Config{URL: b.url()})
	rung := make(chan string, 10)
	stop, err := bus.OnRing(nc, "queue", func(p []byte) { rung <- string(p) })
	if err != nil {
		t.Fatal(err)
	}
	if err := bus.Ring(nc, "other", nil); err != nil {
		t.Fatal(err)
	}
	if err := bus.Ring(nc, "queue", struct{ Lane int }{7}); err != nil {
		t.Fatal(err)
	}
	if got := <-rung; got != `{"Lane":7}` {
		t.Error(got)
	}
	stop()
	stop()
	if err := bus.Ring(nc, "a.b", nil); err == nil {
		t.Error("a kind with a dot passes")
	}
	if _, err := bus.OnRing(nc, "*", nil); err == nil {
		t.Error("a wildcard passes")
	}
}

// A request is foreign bytes: Decode never panics and refuses with code 400 only.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"n":1}`))
	f.Add([]byte(`{"n":1}{}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, body []byte) {
		var v struct {
			N int `json:"n"`
		}
		err := bus.Request{Body: body}.Decode(&v)
		var refusal *bus.Error
		if err != nil && (!errors.As(err, &refusal) || refusal.Code != "400") {
			t.Error(err)
		}
	})
}
