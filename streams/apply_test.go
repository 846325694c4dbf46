package streams_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/streams"
)

func TestDefinitions(t *testing.T) {
	t.Parallel()
	var names []string
	for _, d := range streams.Load() {
		names = append(names, d.Config.Name)
		c := d.Config
		if c.Storage != jetstream.FileStorage || c.Retention != jetstream.LimitsPolicy || c.MaxBytes <= 0 || c.MaxMsgSize <= 0 {
			t.Errorf("%s: must be on file, keep by limits and be bounded", d.File)
		}
		if c.MaxAge > 0 && c.Duplicates > c.MaxAge {
			t.Errorf("%s: the duplicate window outlives the messages", d.File)
		}
	}
	if !slices.Equal(names, []string{streams.Requests, streams.Events, streams.DeadLetter, streams.Advisories}) {
		t.Error(names)
	}
	for raw, want := range map[string]string{
		`{"name":"X","subjects":["x"],"max_byte":1}`: "max_byte",
		`{"name":"X"}`:                        "subjects",
		`{"name":"X","subjects":["x"]} {}`:    "more than one",
		`{"name":"X","subjects":["x"],"a":1}`: `"a"`,
	} {
		if _, err := streams.Decode([]byte(raw)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestApplyIsIdempotentAndLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	js, _ := serve(t, 0)
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other.>"}}); err != nil {
		t.Fatal(err)
	}
	for _, e := range apply(t, ctx, js, small()) {
		if e.Action != streams.Created {
			t.Errorf("%s %s", e.Stream, e.Action)
		}
	}
	if r := apply(t, ctx, js, small()); strings.Count(r.String(), "unchanged") != 4 {
		t.Error(r)
	}
	s, err := js.Stream(ctx, "OTHER")
	if err != nil || s.CachedInfo().Config.Subjects[0] != "other.>" {
		t.Error(err)
	}
}

// A field that no file mentions belongs to the operator.
func TestApplyKeepsWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	js, _ := serve(t, 0)
	apply(t, ctx, js, small())
	c := config(t, js, streams.Events)
	c.Metadata = map[string]string{"owner": "ops"}
	c.Description = "mine"
	if _, err := js.UpdateStream(ctx, c); err != nil {
		t.Fatal(err)
	}
	r := apply(t, ctx, js, small())
	if len(r[1].Changes) != 1 || r[1].Changes[0].Field != "description" {
		t.Errorf("changes: %v", r)
	}
	if got := config(t, js, streams.Events); got.Metadata["owner"] != "ops" || got.Description == "mine" {
		t.Errorf("%+v", got)
	}
}

func TestDrift(t *testing.T) {
	t.Parallel()
	type row struct {
		name    string
		change  func(*jetstream.StreamConfig) // what somebody did to POSTHOUSE_EVENTS
		message bool                          // it holds a message
		refused string                        // the field, "" = applied
	}
	for _, c := range []row{
		{"fewer subjects, empty", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "more.>") }, false, ""},
		{"fewer subjects", func(c *jetstream.StreamConfig) { c.Subjects = append(c.Subjects, "more.>") }, true, "subjects"},
		{"more subjects", func(c *jetstream.StreamConfig) { c.Subjects = []string{"posthouse.event.delivery.*.*.*"} }, true, ""},
		{"wider subjects before", func(c *jetstream.StreamConfig) { c.Subjects = []string{"posthouse.event.>"} }, true, "subjects"},
		{"larger before, fits", func(c *jetstream.StreamConfig) { c.MaxBytes *= 2 }, true, ""},
		{"unbounded before, fits", func(c *jetstream.StreamConfig) { c.MaxBytes = -1 }, true, ""},
		{"longer age before, young", func(c *jetstream.StreamConfig) { c.MaxAge *= 2 }, true, ""},
		{"shorter age before", func(c *jetstream.StreamConfig) { c.MaxAge /= 2 }, true, ""},
		{"discard old before", func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, true, ""},
		{"longer window, empty", func(c *jetstream.StreamConfig) { c.Duplicates *= 2 }, false, ""},
		{"longer window", func(c *jetstream.StreamConfig) { c.Duplicates *= 2 }, true, "duplicate_window"},
		{"larger messages before", func(c *jetstream.StreamConfig) { c.MaxMsgSize *= 2 }, true, "max_msg_size"},
		{"no atomic before", func(c *jetstream.StreamConfig) { c.AllowAtomicPublish = false }, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx := t.Context()
			js, _ := serve(t, 0)
			apply(t, ctx, js, small())
			cfg := config(t, js, streams.Events)
			c.change(&cfg)
			if _, err := js.UpdateStream(ctx, cfg); err != nil {
				t.Fatal(err)
			}
			if c.message {
				if _, err := js.Publish(ctx, streams.Event(streams.KindDelivery, "sent", "mail", "acme"), []byte("x")); err != nil {
					t.Fatal(err)
				}
			}
			before := config(t, js, streams.Events)
			_, err := streams.Apply(ctx, js, small())
			if c.refused == "" {
				if err != nil {
					t.Fatal(err)
				}
				if r, err := streams.Diff(ctx, js, small()); err != nil || strings.Count(r.String(), "unchanged") != 4 {
					t.Errorf("after: %v %v", r, err)
				}
				return
			}
			var drift *streams.DriftError
			if !errors.As(err, &drift) || drift.Change.Field != c.refused || drift.Stream != streams.Events {
				t.Fatalf("error %v, want a refusal of %s", err, c.refused)
			}
			if a, b := asJSON(t, before), asJSON(t, config(t, js, streams.Events)); a != b {
				t.Errorf("a refused Apply changed the stream:\n%s\n%s", a, b)
			}
		})
	}
}

// Storage and retention cannot be changed on a live stream: the refusal is ours,
// with the reason, and the other streams are not made meanwhile.
func TestDriftOfStorage(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	js, _ := serve(t, 0)
	if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: streams.Events, Subjects: []string{streams.AllEvents()},
		Storage: jetstream.MemoryStorage, Retention: jetstream.InterestPolicy, Duplicates: time.Minute}); err != nil {
		t.Fatal(err)
	}
	_, err := streams.Apply(ctx, js, small())
	if err == nil || !strings.Contains(err.Error(), "storage") || !strings.Contains(err.Error(), "retention") {
		t.Fatal(err)
	}
	if _, err := js.Stream(ctx, streams.Requests); !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Error("a refused Apply made a stream")
	}
}

func TestSmallerThanItsContent(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	js, _ := serve(t, 0)
	apply(t, ctx, js, small())
	body := make([]byte, 900<<10)
	for range 12 {
		if _, err := js.Publish(ctx, streams.Event(streams.KindDelivery, "sent", "mail", "acme"), body); err != nil {
			t.Fatal(err)
		}
	}
	var drift *streams.DriftError
	if _, err := streams.Apply(ctx, js, streams.Options{MaxBytes: 16 << 20}); !errors.As(err, &drift) || drift.Change.Field != "max_bytes" {
		t.Fatal(err)
	}
}

// A machine with little disk: the files as they stand are refused with advice,
// and a total that fits is shared out.
func TestSmallDisk(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	js, _ := serve(t, 256<<20)
	if _, err := streams.Apply(ctx, js, streams.Options{}); err == nil || !strings.Contains(err.Error(), "STREAMS_MAX_BYTES") {
		t.Fatal(err)
	}
	apply(t, ctx, js, streams.Options{MaxBytes: 200 << 20})
	var sum int64
	for _, d := range streams.Load() {
		sum += config(t, js, d.Config.Name).MaxBytes
	}
	if sum > 200<<20 || sum < 190<<20 {
		t.Errorf("reserved %d", sum)
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	err := streams.Options{MaxBytes: 1, Replicas: 2}.Validate()
	if err == nil || !strings.Contains(err.Error(), "STREAMS_MAX_BYTES") || !strings.Contains(err.Error(), "STREAMS_REPLICAS") {
		t.Error(err)
	}
}

// The server's own words about a request that was terminated are kept.
func TestAdvisories(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	js, _ := serve(t, 0)
	apply(t, ctx, js, small())
	if _, err := js.Publish(ctx, streams.Send("mail", "acme"), []byte("{")); err != nil {
		t.Fatal(err)
	}
	c, err := js.CreateConsumer(ctx, streams.Requests, jetstream.ConsumerConfig{Durable: "sender", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Next()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.TermWithReason("not JSON"); err != nil {
		t.Fatal(err)
	}
	a, err := js.CreateConsumer(ctx, streams.Advisories, jetstream.ConsumerConfig{Durable: "dead-letter", AckPolicy: jetstream.AckExplicitPolicy})
	if err != nil {
		t.Fatal(err)
	}
	m, err = a.Next(jetstream.FetchMaxWait(20 * time.Second))
	if err != nil || !strings.Contains(string(m.Data()), "not JSON") {
		t.Fatal(m, err)
	}
}

func config(t *testing.T, js jetstream.JetStream, name string) jetstream.StreamConfig {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().Config
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
