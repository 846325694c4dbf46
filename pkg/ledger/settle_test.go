package ledger_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// result is the settlement of an attempt that led to the given state.
func result(c ledger.Claimed, state delivery.State, verdict delivery.Verdict, recipients ...delivery.RecipientOutcome) ledger.Settlement {
	return ledger.Settlement{Claimed: c, Verdict: verdict, Attempt: true, Cause: "attempt", Peer: "mx.example.test:25",
		Decision: retry.Decision{State: state, Answer: delivery.Answer{Category: delivery.Transient, Code: "451"}, Recipients: recipients}}
}

func (b *book) settle(t testing.TB, want ledger.Settled, s ledger.Settlement) {
	t.Helper()
	results, batch, err := b.Settle(t.Context(), []ledger.Settlement{s})
	if err != nil || results[0] != want || (want == ledger.Moved) != (len(batch.Messages) == 1) {
		t.Fatalf("settled %v with %d messages, %v; want %s", results, len(batch.Messages), err, want)
	}
}

// one is a delivery that has just been claimed.
func (b *book) one(t testing.TB, change ...func(*ledger.Acceptance)) ledger.Claimed {
	t.Helper()
	r := b.request("acme", delivery.NewID().String())
	for _, c := range change {
		c(&r)
	}
	b.accept(t, r)
	for _, c := range b.claim(t, b.join(t, time.Minute), 100, "acme") {
		if c.ID == r.ID {
			return c
		}
	}
	t.Fatal("not claimed")
	return ledger.Claimed{}
}

func (b *book) status(t testing.TB, id delivery.ID) *delivery.Status {
	t.Helper()
	s, err := b.Status(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (b *book) snapshot(t testing.TB) string {
	t.Helper()
	var out string
	if err := b.db.QueryRow(t.Context(), `
		SELECT concat_ws(';', (SELECT string_agg(q::text, ',' ORDER BY id) FROM queue q), (SELECT string_agg(d::text, ',' ORDER BY id) FROM delivery d),
			(SELECT string_agg(r::text, ',' ORDER BY delivery_id, ordinal) FROM recipient r), (SELECT count(*) FROM attempt), (SELECT count(*) FROM event), (SELECT count(*) FROM outbox))`).Scan(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestEverySettlement(t *testing.T) {
	t.Parallel()
	b := open(t)
	for _, c := range []struct {
		state   delivery.State
		verdict delivery.Verdict
		queued  string
		retries int
	}{
		{delivery.Sent, delivery.Accepted, "", 0}, {delivery.Failed, delivery.Refused, "", 0}, {delivery.Dead, delivery.Refused, "", 0},
		{delivery.Retry, delivery.Refused, "waiting", 1}, {delivery.Retry, delivery.Unknown, "waiting", 1}, {delivery.Held, delivery.Unknown, "held", 0},
	} {
		name := fmt.Sprintf("%s after %s", c.state, c.verdict)
		k := b.one(t)
		s := result(k, c.state, c.verdict)
		s.Decision.Delay = time.Hour
		b.settle(t, ledger.Moved, s)
		got := b.status(t, k.ID)
		if got.State != c.state || got.Version != 2 || got.Attempts != 1 || got.Retries != c.retries || len(got.Tried) != 1 || got.Tried[0].Verdict != c.verdict.String() || got.InWork {
			t.Errorf("%s: %+v", name, got)
		}
		var queued string
		_ = b.db.QueryRow(t.Context(), "SELECT state FROM queue WHERE id = $1 AND owner IS NULL AND version = 2 AND (state = 'held' OR due_at > now() + interval '59 minutes')", [16]byte(k.ID)).Scan(&queued)
		if queued != c.queued {
			t.Errorf("%s: in the queue as %q, want %q", name, queued, c.queued)
		}
		b.settle(t, ledger.Already, s)
	}
}

func TestAStaleSettlementWritesNothing(t *testing.T) {
	t.Parallel()
	b := open(t)
	k := b.one(t)
	for name, change := range map[string]func(*ledger.Claimed){
		"fence below": func(k *ledger.Claimed) { k.Fence-- }, "fence above": func(k *ledger.Claimed) { k.Fence++ },
		"version": func(k *ledger.Claimed) { k.Version++ }, "owner": func(k *ledger.Claimed) { k.Worker = uuid.New() },
		"id": func(k *ledger.Claimed) { k.ID = delivery.NewID() },
	} {
		before, stale := b.snapshot(t), k
		change(&stale)
		for _, state := range []delivery.State{delivery.Sent, delivery.Retry} {
			b.settle(t, ledger.Stale, result(stale, state, delivery.Accepted, delivery.RecipientOutcome{Verdict: delivery.Accepted}))
		}
		stale.Version = k.Version
		if name != "version" {
			if err := b.GiveBack(t.Context(), []ledger.Settlement{{Claimed: stale}}); err != nil {
				t.Fatal(err)
			}
		}
		if after := b.snapshot(t); after != before {
			t.Errorf("stale by %s:\n%s\n%s", name, before, after)
		}
	}
	b.settle(t, ledger.Moved, sent(k))
}

func TestSeveralRecipientsOverTwoAttempts(t *testing.T) {
	t.Parallel()
	b := open(t)
	k := b.one(t, func(r *ledger.Acceptance) { r.Recipients = []string{"a@x.test", "b@x.test", "c@x.test"} })
	b.settle(t, ledger.Moved, result(k, delivery.Retry, delivery.Refused,
		delivery.RecipientOutcome{Ordinal: 0, Verdict: delivery.Accepted, Answer: delivery.Answer{Code: "250"}},
		delivery.RecipientOutcome{Ordinal: 2, Verdict: delivery.Refused, Answer: delivery.Answer{Code: "550", Text: "no such\x00user"}}))
	if _, err := b.work.Look(t.Context(), k.Group(), 1); err != nil {
		t.Fatal(err)
	}
	again := b.claim(t, b.join(t, time.Minute), 1, "acme")
	if len(again) != 1 || again[0].Accepted != 1 || len(again[0].Recipients) != 1 || again[0].Recipients[0].Ordinal != 1 || again[0].Recipients[0].Address != "b@x.test" || again[0].Fence != 2 || again[0].Version != 2 {
		t.Fatalf("claimed %+v", again)
	}
	b.settle(t, ledger.Moved, sent(again[0]))
	s := b.status(t, k.ID)
	states := []delivery.RecipientState{s.Recipients[0].State, s.Recipients[1].State, s.Recipients[2].State}
	if !slices.Equal(states, []delivery.RecipientState{delivery.RecipientAccepted, delivery.RecipientAccepted, delivery.RecipientRefused}) || s.Recipients[2].Text != "no such user" || s.Version != 3 {
		t.Fatalf("%+v", s)
	}
}

// One batch, one outbox row, naming exactly what moved, in the batch's order, and
// the same messages are handed on.
func TestOneOutboxRowNamesWhatMoved(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.acceptMany(t, "acme", 6)
	taken := b.claim(t, b.join(t, time.Minute), 6, "acme")
	b.exec(t, "DELETE FROM outbox")
	var settlements []ledger.Settlement
	var want [][16]byte
	for i, c := range taken {
		state := []delivery.State{delivery.Sent, delivery.Retry, delivery.Failed}[i%3]
		if i == 1 || i == 3 {
			c.Fence += 7 // stale
		} else {
			want = append(want, c.ID)
		}
		settlements = append(settlements, result(c, state, delivery.Refused))
	}
	results, batch, err := b.Settle(t.Context(), settlements)
	if err != nil || results[1] != ledger.Stale || results[3] != ledger.Stale || len(batch.Messages) != 4 {
		t.Fatalf("%v %d %v", results, len(batch.Messages), err)
	}
	var id [16]byte
	var aggregates [][16]byte
	var versions []int32
	if err := b.db.QueryRow(t.Context(), "SELECT id, aggregates, versions FROM outbox").Scan(&id, &aggregates, &versions); err != nil {
		t.Fatal(err)
	}
	if id != [16]byte(batch.ID) || !slices.Equal(aggregates, want) || !slices.Equal(versions, []int32{2, 2, 2, 2}) {
		t.Errorf("row %x names %x %v, want %x", id, aggregates, versions, want)
	}
	for i, m := range batch.Messages {
		ev, err := delivery.DecodeEvent(m.Body)
		if err != nil || [16]byte(ev.ID) != want[i] || m.ID != delivery.EventID(ev.ID, 2) || ev.Version != 2 {
			t.Errorf("message %d: %+v %v", i, ev, err)
		}
		var stored []byte
		if err := b.db.QueryRow(t.Context(), "SELECT body FROM event WHERE aggregate = $1 AND version = 2", want[i]).Scan(&stored); err != nil || string(stored) != string(m.Body) {
			t.Errorf("the stored event differs from the message: %v", err)
		}
	}
	if b.count(t, "SELECT count(*) FROM outbox") != 1 {
		t.Error("more than one outbox row")
	}
}

func TestGiveBackCountsNothing(t *testing.T) {
	t.Parallel()
	b := open(t)
	k := b.one(t)
	before := b.status(t, k.ID)
	s := ledger.Settlement{Claimed: k, Decision: retry.Decision{GiveBack: true}}
	for range 2 { // the second finds nothing to do
		if err := b.GiveBack(t.Context(), []ledger.Settlement{s}); err != nil {
			t.Fatal(err)
		}
	}
	after := b.status(t, k.ID)
	if after.Version != before.Version || after.Attempts != 0 || len(after.Tried) != 0 || len(after.Journey) != 1 || after.Gate.Name != "waiting" {
		t.Fatalf("%+v", after)
	}
	if _, err := b.work.Look(t.Context(), k.Group(), 1); err != nil {
		t.Fatal(err)
	}
	if again := b.claim(t, b.join(t, time.Minute), 1, "acme"); len(again) != 1 || again[0].Fence != 2 || again[0].Attempts != 0 {
		t.Fatalf("claimed %+v", again)
	}
	b.settle(t, ledger.Stale, sent(k))
}

func TestForeignBytesInAResult(t *testing.T) {
	t.Parallel()
	b := open(t)
	k := b.one(t)
	s := result(k, delivery.Failed, delivery.Refused, delivery.RecipientOutcome{Verdict: delivery.Refused, Answer: delivery.Answer{Code: "5\x0050", Text: "\xff\x00"}})
	s.Decision.Answer = delivery.Answer{Category: delivery.Permanent, Phase: "rc\x00pt", Code: "\x00", Enhanced: "\xff", Text: "a\x00b\r\nc\x1b[31m"}
	s.Peer, s.RemoteID = "mx\x00", "\x00id"
	b.settle(t, ledger.Moved, s)
	var answer delivery.Answer
	if err := json.Unmarshal(b.status(t, k.ID).Answer, &answer); err != nil || answer.Text != "a b  c [31m" {
		t.Fatalf("%+v %v", answer, err)
	}
}

// Batches that name the same rows in opposite orders: one of them wins each row,
// and a deadlock between them is repeated, not told.
func TestOverlappingSettlements(t *testing.T) {
	t.Parallel()
	b := open(t)
	const rows = 80
	for range 5 {
		batch := make([]ledger.Acceptance, rows)
		for i := range batch {
			batch[i] = b.request("acme", delivery.NewID().String())
		}
		b.accept(t, batch...)
		taken := b.claim(t, b.join(t, time.Minute), rows, "acme")
		won := make([]int, 4)
		var wg sync.WaitGroup
		for w := range won {
			wg.Go(func() {
				settlements := make([]ledger.Settlement, rows)
				for i, c := range taken {
					state := []delivery.State{delivery.Sent, delivery.Retry}[(i+w/2)%2]
					settlements[i] = result(c, state, delivery.Refused)
					settlements[i].Decision.Delay = time.Hour
				}
				if w%2 == 1 {
					slices.Reverse(settlements)
				}
				results, _, err := b.Settle(t.Context(), settlements)
				if err != nil {
					t.Error(err)
				}
				for _, r := range results {
					if r == ledger.Moved {
						won[w]++
					}
				}
			})
		}
		wg.Wait()
		if sum := won[0] + won[1] + won[2] + won[3]; sum != rows {
			t.Fatalf("%d moves of %d rows: %v", sum, rows, won)
		}
	}
	if n := b.count(t, "SELECT count(*) FROM (SELECT FROM event WHERE version = 2 GROUP BY aggregate HAVING count(*) = 1) x"); n != 5*rows {
		t.Errorf("%d second versions, want %d", n, 5*rows)
	}
	t.Logf("deadlocks met and repeated: %d", b.count(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"))
}
