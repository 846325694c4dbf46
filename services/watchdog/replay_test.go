package watchdog

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// ask sends a request to an operation's handler.
func ask[T any](s *site, handle func(bus.Request) (any, error), in any) (T, error) {
	s.t.Helper()
	var out T
	body, err := json.Marshal(in)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := handle(bus.Request{Body: body})
	if err != nil {
		return out, err
	}
	if body, err = json.Marshal(answer); err != nil {
		s.t.Fatal(err)
	}
	if err := json.Unmarshal(body, &out); err != nil {
		s.t.Fatal(err)
	}
	return out, nil
}

func (s *site) replayOp(r delivery.ReplayRequest) (delivery.Replay, error) {
	s.t.Helper()
	return ask[delivery.Replay](s, func(req bus.Request) (any, error) { return s.askReplay(s.t.Context(), req) }, r)
}

func TestReplayRebuildsALostStream(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 120)
	s.accept("globex", 80)
	s.publish()
	s.exec(`UPDATE event SET at = now() - interval '100 minutes' * random()`)
	s.loseAll()
	dry, err := s.replayOp(delivery.ReplayRequest{Since: time.Now().Add(-2 * time.Hour), By: "ada", DryRun: true})
	if err != nil || dry.Total == nil || *dry.Total != 200 || dry.Status != "dry_run" || dry.ID != nil {
		t.Fatalf("%+v %v", dry, err)
	}
	if err := s.replays(t.Context()); err != nil || len(s.entries()) != 0 {
		t.Fatalf("a dry run published: %v", err)
	}
	asked, err := s.replayOp(delivery.ReplayRequest{Since: time.Now().Add(-2 * time.Hour), By: "ada"})
	if err != nil || asked.ID == nil || asked.Status != "running" {
		t.Fatalf("%+v %v", asked, err)
	}
	if err := s.replays(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.compare(1)
	done, err := s.book.Replay(t.Context(), *asked.ID)
	if err != nil || done.Status != "done" || done.Published != 200 || done.FinishedAt == nil || !done.Reached.Equal(done.Until) {
		t.Fatalf("%+v %v", done, err)
	}
	var last time.Time
	for _, e := range s.entries() { // in the order of the book
		id, version, err := delivery.ParseEventID(e.id)
		if err != nil {
			t.Fatal(err)
		}
		at := value[time.Time](s, `SELECT at FROM event WHERE aggregate = $1 AND version = $2`, [16]byte(id), version)
		if at.Before(last) {
			t.Fatalf("%s comes after what was booked later", e.id)
		}
		last = at
	}
}

// A replay into a stream that still has everything is not swallowed.
func TestReplayOfATenant(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 5)
	s.accept("globex", 7)
	s.accept("acme_", 3) // an underscore is no wildcard
	s.publish()
	if _, err := s.replayOp(delivery.ReplayRequest{Since: time.Now().Add(-time.Hour), Tenant: "acme", State: "pending", By: "ada"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.replayOp(delivery.ReplayRequest{Since: time.Now().Add(-time.Hour), Tenant: "acme", State: "sent", By: "ada"}); err != nil {
		t.Fatal(err)
	}
	if err := s.replays(t.Context()); err != nil {
		t.Fatal(err)
	}
	again := s.entries()[15:]
	if len(again) != 5 {
		t.Fatalf("%d published again", len(again))
	}
	for _, e := range again {
		if !strings.HasSuffix(e.subject, ".acme") || !strings.HasPrefix(e.msgID, e.id+".") {
			t.Errorf("%+v", e)
		}
	}
	s.compare(2)
}

// The process dies between two pages: another goes on, and nothing is there twice.
func TestReplayGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 5 {
		s.accept("acme", 200)
	}
	s.publish()
	s.exec(`UPDATE event SET at = now() - interval '90 minutes' * random()`)
	s.loseAll()
	asked, err := s.replayOp(delivery.ReplayRequest{Since: time.Now().Add(-2 * time.Hour), By: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	crash, steps := errors.New("crash"), 0
	err = s.replay(t.Context(), &asked, func() error {
		if steps++; steps == 12 {
			return crash
		}
		return nil
	})
	if !errors.Is(err, crash) {
		t.Fatal(err)
	}
	half := len(s.entries())
	if half == 0 || half == 1000 {
		t.Fatalf("%d events before the crash: the test proves nothing", half)
	}
	if err := s.replays(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.compare(1)
	if r, err := s.book.Replay(t.Context(), *asked.ID); err != nil || r.Status != "done" {
		t.Fatalf("%+v %v", r, err)
	}
}

func TestReplayIsCancelled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 3)
	s.publish()
	asked, err := s.replayOp(delivery.ReplayRequest{Since: time.Now().Add(-time.Hour), By: "ada"})
	if err != nil {
		t.Fatal(err)
	}
	cancel := func(id string) (delivery.Replay, error) {
		return ask[delivery.Replay](s, func(r bus.Request) (any, error) { return s.stopReplay(t.Context(), r) }, delivery.ReplayLookup{ID: id})
	}
	if r, err := cancel(asked.ID.String()); err != nil || r.Status != "cancelled" {
		t.Fatalf("%+v %v", r, err)
	}
	if err := s.replays(t.Context()); err != nil || len(s.entries()) != 3 {
		t.Fatalf("a cancelled replay published: %v", err)
	}
	for id, code := range map[string]string{asked.ID.String(): "409", delivery.NewID().String(): "404", "x": "400"} {
		var refusal *bus.Error
		if _, err := cancel(id); !errors.As(err, &refusal) || refusal.Code != code {
			t.Errorf("cancel %s: %v, want %s", id, err, code)
		}
	}
}

func TestReplayRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	hour := time.Now().Add(-time.Hour)
	before := hour.Add(-time.Hour)
	for i, r := range []delivery.ReplayRequest{
		{By: "ada"}, {Since: time.Now().Add(time.Hour), By: "ada"}, {Since: hour, Until: &before, By: "ada"}, {Since: hour},
		{Since: hour, By: strings.Repeat("a", 101)}, {Since: hour, By: "ada", Tenant: "a.b"}, {Since: hour, By: "ada", State: "*"},
	} {
		var refusal *bus.Error
		if _, err := s.replayOp(r); !errors.As(err, &refusal) || refusal.Code != "400" {
			t.Errorf("request %d: %v", i, err)
		}
	}
	list, err := ask[[]delivery.Replay](s, func(r bus.Request) (any, error) { return s.showReplays(t.Context(), r) }, delivery.ReplayLookup{})
	if err != nil || len(list) != 0 {
		t.Fatal(list, err)
	}
}

// The rate is kept over pages, and a pause is not made up for.
func TestPace(t *testing.T) {
	t.Parallel()
	r := republisher{rate: 1000}
	began := time.Now()
	for range 3 {
		if err := r.pace(t.Context(), 100); err != nil {
			t.Fatal(err)
		}
	}
	if took := time.Since(began); took < 290*time.Millisecond {
		t.Fatal(fmt.Sprint("300 events at 1000 a second in ", took))
	}
}
