package house_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/services/house/housetest"
	"github.com/posthouse-io/posthouse/streams"
)

// A receiver that keeps the highest version of each delivery ends with what the
// book says, while two senders publish, and one that asks for the status gets the
// same.
func TestReceiverKeepsTheHighestVersion(t *testing.T) {
	t.Parallel()
	const n = 200
	s := housetest.New(t, housetest.Options{})
	s.Start(housetest.Sender, nil)
	s.Start(housetest.Sender, nil)
	c, err := client.New(s.NATS, "")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	highest := map[delivery.ID]*delivery.Event{}
	ctx, stop := context.WithCancel(t.Context())
	watching := make(chan error, 1)
	go func() {
		watching <- c.Watch(ctx, client.Filter{Tenant: "acme", Since: time.Now().Add(-time.Hour)}, func(ev *delivery.Event) error {
			mu.Lock()
			defer mu.Unlock()
			if have := highest[ev.ID]; have == nil || have.Version < ev.Version {
				highest[ev.ID] = ev
			}
			return nil
		})
	}()
	defer func() {
		stop()
		if err := <-watching; err != nil {
			t.Error(err)
		}
	}()
	for i := range n {
		r := delivery.Request{ID: fmt.Sprintf("r-%d", i), Custom: fmt.Appendf(nil, `{"order":%d}`, i)}
		r.To, r.Subject, r.Text = []string{fmt.Sprintf("defer-%d+%d@example.org", i%4, i)}, "s", "t"
		if err := c.Send(ctx, delivery.Mail, "acme", r); err != nil {
			t.Fatal(err)
		}
	}
	s.Publish(housetest.Mail("other", "not-for-us", "a@example.org"))
	s.Settled(n+1, time.Minute)
	audit := s.Audit()
	audit.Check(t)
	localtest.Eventually(t, 30*time.Second, func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(highest) != n {
			return fmt.Errorf("events of %d deliveries were seen, want %d", len(highest), n)
		}
		for id, ev := range highest {
			if a := audit.Accounts[id]; ev.Version != a.Version || ev.State != a.State {
				return fmt.Errorf("%s was seen as %s at version %d, is %s at %d", id, ev.State, ev.Version, a.State, a.Version)
			}
		}
		return nil
	})
	for i := 0; i < n; i += 7 {
		status, err := c.Status(ctx, fmt.Sprintf("r-%d", i), "acme")
		if err != nil {
			t.Fatal(err)
		}
		ev := highest[status.ID]
		if want := i%4 + 1; ev == nil || status.Version != ev.Version || status.State != delivery.Sent || status.Attempts != want || len(status.Tried) != want ||
			len(status.Journey) != status.Version || status.Gate.Name != "final" || string(ev.Custom) != fmt.Sprintf(`{"order":%d}`, i) {
			t.Errorf("status of r-%d is %+v, the last event %+v", i, status, ev)
		}
	}
	if _, err := c.Status(ctx, "not-for-us", "acme"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("another tenant's request: %v, want ErrNotFound", err)
	}
}

// The trace of a request is that of all its events; what is no trace is dropped.
func TestTraceOfTheRequestIsInItsEvents(t *testing.T) {
	t.Parallel()
	s := housetest.New(t, housetest.Options{})
	s.Start(housetest.Sender, nil)
	const right = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	traces := map[string]string{"with": right, "without": "", "wrong": "00-no-trace\x01", "long": right + "0"}
	for id, trace := range traces {
		m := housetest.Mail("acme", id, "defer-1+"+id+"@example.org")
		if trace != "" {
			m.Header.Set(bus.HeaderTraceParent, trace)
		}
		s.Publish(m)
	}
	s.Settled(len(traces), 30*time.Second)
	s.Audit().Check(t)
	seen := map[string]int{}
	for _, m := range s.Stream(streams.Events) {
		ev, err := delivery.DecodeEvent(m.Data)
		if err != nil {
			t.Fatal(err)
		}
		want := ""
		if ev.RequestID == "with" {
			want = right
		}
		if have := m.Header.Get(bus.HeaderTraceParent); have != want {
			t.Errorf("event %s of %q has the trace %q, want %q", ev.Event, ev.RequestID, have, want)
		}
		if m.Header.Get(bus.HeaderMsgID) != ev.Event || m.Header.Get(bus.HeaderEventID) != ev.Event {
			t.Errorf("event %s has the headers %v", ev.Event, m.Header)
		}
		seen[ev.RequestID]++
	}
	for id := range traces {
		if seen[id] != 3 {
			t.Errorf("request %q has %d events, want 3", id, seen[id])
		}
	}
}
