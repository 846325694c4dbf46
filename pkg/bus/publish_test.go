package bus_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/streams"
)

func publisher(t *testing.T, nc *nats.Conn, wait time.Duration) *bus.Publisher {
	t.Helper()
	p, err := bus.NewPublisher(nc, wait)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func events(from, to int) []*nats.Msg {
	var all []*nats.Msg
	for i := from; i < to; i++ {
		all = append(all, event(fmt.Sprintf("e%04d", i)))
	}
	return all
}

// bodies reads a whole stream.
func bodies(t *testing.T, js jetstream.JetStream, stream string) []string {
	t.Helper()
	n := int(stored(t, js, stream))
	if n == 0 {
		return nil
	}
	c, err := js.OrderedConsumer(t.Context(), stream, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := c.Fetch(n, jetstream.FetchMaxWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for m := range b.Messages() {
		all = append(all, string(m.Data()))
	}
	return all
}

// 1200 messages are three atomic batches; the caller's messages stay as they were.
func TestPublishBatches(t *testing.T) {
	t.Parallel()
	_, nc, js := withStreams(t)
	msgs := events(0, 1200)
	if err := publisher(t, nc, patience).Publish(t.Context(), msgs).Err(); err != nil {
		t.Fatal(err)
	}
	got := bodies(t, js, streams.Events)
	if len(got) != 1200 || !slices.IsSorted(got) {
		t.Errorf("%d stored, in order: %v", len(got), slices.IsSorted(got))
	}
	if len(msgs[3].Header) != 1 {
		t.Error(msgs[3].Header)
	}
}

// One id that the stream knows refuses the batch (10201): the others are stored
// all the same, and nothing twice. Also an id twice in one batch.
func TestPublishDuplicateInBatch(t *testing.T) {
	t.Parallel()
	_, nc, js := withStreams(t)
	p := publisher(t, nc, patience)
	if err := p.Publish(t.Context(), events(5, 6)).Err(); err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(t.Context(), append(events(0, 20), events(3, 4)...)).Err(); err != nil {
		t.Fatal(err)
	}
	got := bodies(t, js, streams.Events)
	slices.Sort(got)
	if len(got) != 20 || len(slices.Compact(got)) != 20 {
		t.Error(got)
	}
}

// Each refusal names its own message; what can be stored is stored, in a batch and
// one by one.
func TestPublishTellsEach(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 40} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { t.Parallel(); tellsEach(t, size) })
	}
}

func tellsEach(t *testing.T, size int) {
	_, nc, js := withStreams(t)
	msgs := events(0, size)
	msgs[1].Header.Del(bus.HeaderMsgID)
	msgs[2].Data = make([]byte, 2<<20) // above max_msg_size
	msgs[4].Header.Set(bus.HeaderExpectedStream, streams.DeadLetter)
	msgs[6].Subject = "nobody.stores.this"
	msgs[8].Subject = streams.DLQ(streams.Held, "mail", "acme")
	msgs[9].Data = make([]byte, 9<<20) // above max_payload
	r := publisher(t, nc, patience).Publish(t.Context(), msgs)
	if got := slices.Sorted(maps.Keys(r.Failed)); !slices.Equal(got, []int{1, 2, 4, 6, 9}) {
		t.Fatal(r.Failed)
	}
	if !strings.Contains(r.Failed[2].Error(), "e0002") || !strings.Contains(r.Err().Error(), "e0004") {
		t.Error(r.Err())
	}
	if n := int(stored(t, js, streams.Events)); n != size-6 {
		t.Errorf("%d events", n)
	}
	if n := stored(t, js, streams.DeadLetter); n != 1 {
		t.Errorf("%d letters", n)
	}
}

// A full stream refuses what no longer fits, with the server's word for it.
func TestPublishIntoFullStream(t *testing.T) {
	t.Parallel()
	b := newBox(t)
	nc, js := connect(t, bus.Config{URL: b.url()})
	if _, err := streams.Apply(t.Context(), js, streams.Options{MaxBytes: 16 << 20}); err != nil {
		t.Fatal(err)
	}
	msgs := events(0, 40)
	for _, m := range msgs {
		m.Data = make([]byte, 400<<10)
	}
	r := publisher(t, nc, patience).Publish(t.Context(), msgs)
	n := stored(t, js, streams.Events)
	if len(r.Failed) == 0 || int(n)+len(r.Failed) != len(msgs) || !strings.Contains(r.Err().Error(), "10077") {
		t.Errorf("%d stored, %d failed: %.200s", n, len(r.Failed), r.Err())
	}
}

// With the server away all of it fails, soon; afterwards the same messages go.
func TestPublishAcrossRestart(t *testing.T) {
	t.Parallel()
	b, nc, _ := withStreams(t)
	p := publisher(t, nc, 2*time.Second)
	msgs := events(0, 600)
	if err := p.Publish(t.Context(), msgs[:100]).Err(); err != nil {
		t.Fatal(err)
	}
	b.stop()
	began := time.Now()
	if r := p.Publish(t.Context(), msgs); len(r.Failed) != 600 {
		t.Errorf("%d failed", len(r.Failed))
	}
	if d := time.Since(began); d > 30*time.Second {
		t.Error("it took", d)
	}
	b.start()
	eventually(t, "published", func() bool { return p.Publish(t.Context(), msgs).Err() == nil })
	_, js := connect(t, bus.Config{URL: b.url()})
	got := bodies(t, js, streams.Events)
	slices.Sort(got)
	if len(got) != 600 || len(slices.Compact(got)) != 600 {
		t.Error(len(got))
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if r := p.Publish(ended, events(700, 703)); len(r.Failed) != 3 {
		t.Error(r)
	}
}
