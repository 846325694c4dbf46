package watchdog

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/streams"
)

// A stream of dead letters that was lost, or has lost its end, holds every open letter
// again after the next look, once; what was dealt with stays away.
func TestLostLettersAreToldAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	archive := func(from, to int) {
		t.Helper()
		var letters []ledger.DeadLetter
		for i := from; i < to; i++ {
			letters = append(letters, ledger.DeadLetter{Letter: delivery.Letter{EventID: fmt.Sprintf("%s.2-%03d", delivery.NewID(), i), Source: "send_failed", Channel: "mail", Tenant: "acme",
				Code: "550", Reason: "no such user", Summary: []byte(`{"n":1}`)}})
		}
		batch, err := s.book.Archive(t.Context(), letters)
		if err != nil {
			t.Fatal(err)
		}
		s.take(batch)
		s.exec(`UPDATE dead_letter SET archived_at = now() - interval '3 minutes'`) // older than what the relay may have under way
		s.publish()
	}
	look := func() {
		t.Helper()
		s.exec(`UPDATE duty SET done_at = now() - interval '2 hours' WHERE name = 'letters'`)
		if err := s.reconcileLetters(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	held := func() (n int, ids map[string]int) {
		t.Helper()
		ids = make(map[string]int)
		st, err := s.js.Stream(t.Context(), streams.DeadLetter)
		if err != nil {
			t.Fatal(err)
		}
		info := st.CachedInfo()
		for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
			m, err := st.GetMsg(t.Context(), seq)
			if err != nil {
				continue
			}
			ids[m.Header.Get(bus.HeaderEventID)]++
			n++
		}
		return n, ids
	}
	archive(0, 30)
	look() // notes how it stands
	look()
	if n, _ := held(); n != 30 {
		t.Fatalf("%d letters on a stream that lost nothing, want 30", n)
	}
	s.exec(`UPDATE dead_letter SET triage = 'resolved' WHERE event_id LIKE '%-007'`)
	cfg := func() jetstream.StreamConfig {
		st, err := s.js.Stream(t.Context(), streams.DeadLetter)
		if err != nil {
			t.Fatal(err)
		}
		return st.CachedInfo().Config
	}()
	if err := s.js.DeleteStream(t.Context(), streams.DeadLetter); err != nil {
		t.Fatal(err)
	}
	if _, err := s.js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	archive(30, 35) // after the loss
	look()
	look()
	n, ids := held()
	for id, times := range ids {
		if times != 1 {
			t.Errorf("%s is there %d times", id, times)
		}
	}
	if n != 34 {
		t.Errorf("%d letters after the loss, want the 34 open ones", n)
	}

	// The end is lost, and others have come in its place, before anybody looked.
	st, err := s.js.Stream(t.Context(), streams.DeadLetter)
	if err != nil {
		t.Fatal(err)
	}
	archive(35, 40)
	info, err := st.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range uint64(3) {
		if err := st.DeleteMsg(t.Context(), info.State.LastSeq-i); err != nil {
			t.Fatal(err)
		}
	}
	archive(40, 42)
	look()
	if n, _ := held(); n != 41 {
		t.Errorf("%d letters after a loss between two looks, want 41", n)
	}
	look()
	if n, _ := held(); n != 41 {
		t.Errorf("%d letters after another look, want 41", n)
	}
}
