package bus_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/streams"
)

// census is a service whose instances all answer with their name; serve runs one on a
// connection until the test ends.
func census(t *testing.T, nc *nats.Conn, name string, refuses bool) {
	t.Helper()
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() {
		served <- bus.Serve(ctx, nc, bus.Service{Name: "sender", Version: "1.0.0", Log: zerolog.Nop(), Endpoints: []bus.Endpoint{{
			Name: "name", Subject: streams.OpsEach("sender", "name"), Each: true,
			Handle: func(context.Context, bus.Request) (any, error) {
				if refuses {
					return nil, &bus.Error{Code: "409", Text: name + " does not say"}
				}
				return name, nil
			},
		}}})
	}()
	t.Cleanup(func() {
		end()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func names(t *testing.T, client *nats.Conn) ([]string, error) {
	t.Helper()
	got := []string{}
	err := bus.CallEach(t.Context(), client, "sender", "name", nil, func(answer []byte) error {
		var s string
		err := json.Unmarshal(answer, &s)
		got = append(got, s)
		return err
	})
	slices.Sort(got)
	return got, err
}

// Each instance answers each call, also across the accounts of the shipped server.
func TestEachInstanceAnswers(t *testing.T) {
	t.Parallel()
	b := shipped(t, nil)
	client, _, _ := b.as(t, "operator")
	if got, err := names(t, client); !errors.Is(err, bus.ErrNotRunning) || err.Error() != "no sender is running" {
		t.Fatal(got, err)
	}
	var want []string
	for i := range 4 {
		nc, _, _ := b.as(t, "services")
		want = append(want, fmt.Sprint("sender-", i))
		census(t, nc, want[i], false)
	}
	eventually(t, "all four answer", func() bool {
		got, err := names(t, client)
		return err == nil && slices.Equal(got, want)
	})
	// A refusal of one does not hide the others.
	nc, _, _ := b.as(t, "services")
	census(t, nc, "shy", true)
	var calls sync.WaitGroup
	for range 8 {
		calls.Go(func() {
			if got, err := names(t, client); err != nil || !slices.Equal(got, want) {
				t.Error(got, err)
			}
		})
	}
	calls.Wait()
	broken := errors.New("broken")
	if err := bus.CallEach(t.Context(), client, "sender", "name", nil, func([]byte) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
	if err := bus.CallEach(t.Context(), client, "sender", "a.b", nil, nil); err == nil {
		t.Error("asked on a subject that is none")
	}
}

func TestARefusalOfAllIsOne(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	client, _ := connect(t, bus.Config{URL: b.url()})
	nc, _ := connect(t, bus.Config{URL: b.url()})
	census(t, nc, "shy", true)
	var refusal *bus.Error
	eventually(t, "it refuses", func() bool {
		_, err := names(t, client)
		return errors.As(err, &refusal)
	})
	if refusal.Code != "409" || refusal.Text != "shy does not say" {
		t.Error(refusal)
	}
}

// A service that hears and does not answer costs a bounded time.
func TestNobodyAnswersEach(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	client, _ := connect(t, bus.Config{URL: b.url()})
	mute, _ := connect(t, bus.Config{URL: b.url()})
	if _, err := mute.Subscribe(streams.OpsEach("sender", "name"), func(*nats.Msg) {}); err != nil {
		t.Fatal(err)
	}
	if err := mute.Flush(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if got, err := names(t, client); !errors.Is(err, context.DeadlineExceeded) || len(got) != 0 {
		t.Error(got, err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}
