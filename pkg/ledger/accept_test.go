package ledger_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

func (b *book) count(t testing.TB, sql string, args ...any) (n int) {
	t.Helper()
	if err := b.db.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func TestTheSameRequestIsAcceptedOnce(t *testing.T) {
	t.Parallel()
	b := open(t)
	first, twin, other, changed := b.request("acme", "1"), b.request("acme", "1"), b.request("globex", "1"), b.request("acme", "1")
	changed.BodyHash[0]++

	got := b.accept(t, first, twin, other, changed) // repeats within one batch
	want := []ledger.Acceptation{{ID: first.ID, Fresh: true}, {ID: first.ID}, {ID: other.ID, Fresh: true}, {ID: first.ID, Conflict: true}}
	if !slices.Equal(got, want) {
		t.Fatalf("one batch: %+v\nwant %+v", got, want)
	}
	got = b.accept(t, changed, twin, other) // and later
	want = []ledger.Acceptation{{ID: first.ID, Conflict: true}, {ID: first.ID}, {ID: other.ID}}
	if !slices.Equal(got, want) {
		t.Fatalf("later: %+v\nwant %+v", got, want)
	}
	for table, want := range map[string]int{"delivery": 2, "queue": 2, "event": 2, "content": 2, "recipient": 2, "request_key": 2, "outbox": 1} {
		if n := b.count(t, "SELECT count(*) FROM "+table); n != want {
			t.Errorf("%d rows of %s, want %d", n, table, want)
		}
	}
	var aggregates [][16]byte
	if err := b.db.QueryRow(t.Context(), "SELECT aggregates FROM outbox").Scan(&aggregates); err != nil || !slices.Equal(aggregates, [][16]byte{first.ID, other.ID}) {
		t.Errorf("the outbox row names %v, %v", aggregates, err)
	}
}

// Eight intakes get overlapping batches in opposite orders: every key is taken
// once, all agree on the id, and nobody is the victim of a deadlock.
func TestAcceptFromManyAtOnce(t *testing.T) {
	t.Parallel()
	b := open(t)
	const keys, writers, rounds = 60, 8, 5
	for round := range rounds {
		ids := make([]map[string]delivery.ID, writers)
		fresh := make([]int, writers)
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				batch := make([]ledger.Acceptance, keys)
				for k := range batch {
					n := (k + w*7) % keys
					if w%2 == 1 {
						n = keys - 1 - n
					}
					batch[k] = b.request(fmt.Sprintf("t%d", n%3), fmt.Sprintf("%d-%d", round, n))
					if n%5 == 0 {
						batch[k].OrderingKey = fmt.Sprint("k", n%10)
					}
				}
				results, _, err := b.Accept(t.Context(), batch)
				if err != nil {
					t.Error(err)
					return
				}
				ids[w] = make(map[string]delivery.ID)
				for i, r := range results {
					if r.Conflict {
						t.Errorf("conflict on %s", batch[i].RequestID)
					}
					if r.Fresh {
						fresh[w]++
					}
					ids[w][batch[i].RequestID] = r.ID
				}
			})
		}
		wg.Wait()
		total := 0
		for w := range writers {
			total += fresh[w]
			for key, id := range ids[w] {
				if id != ids[0][key] {
					t.Errorf("writers 0 and %d disagree on %s", w, key)
				}
			}
		}
		if total != keys {
			t.Fatalf("round %d: %d fresh, want %d", round, total, keys)
		}
	}
	if n := b.count(t, "SELECT count(*) FROM delivery"); n != keys*rounds {
		t.Errorf("%d deliveries", n)
	}
	if dead := b.count(t, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"); dead != 0 {
		t.Errorf("%d deadlocks", dead)
	}
}

func TestAcceptWhatCannotBePrepared(t *testing.T) {
	t.Parallel()
	b := open(t)
	r := b.request("acme", "1")
	r.Prepared, r.Raw, r.Failure = nil, []byte(`{}`), &delivery.Answer{Category: delivery.InvalidInput, Code: "CONTENT_INVALID", Text: "empty\x00\nbody"}
	b.accept(t, r)
	s, err := b.Status(t.Context(), r.ID)
	if err != nil || s.State != delivery.Failed || s.Version != 1 || s.Gate.Name != "final" || string(s.Answer) == "" {
		t.Fatalf("%+v %v", s, err)
	}
	if n := b.count(t, "SELECT count(*) FROM queue"); n != 0 {
		t.Fatalf("%d rows in the queue", n)
	}
}

// Bytes that PostgreSQL does not take as text must not make a batch unacceptable,
// which would stop the intake for good.
func TestAcceptForeignBytes(t *testing.T) {
	t.Parallel()
	b := open(t)
	r := b.request("acme", "1")
	r.Recipients = []string{"a\x00b@example.test", "\xff\xfe@example.test"}
	r.Trace = "00-\x00\xff"
	r.Custom = []byte(`{"x":"\u0000\ud800","n":1e999999}`)
	good := b.request("acme", "2")
	good.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	b.accept(t, r, good)
	for _, c := range b.claimAll(t, 10) {
		if want := map[delivery.ID]string{good.ID: good.Trace}[c.ID]; c.Trace != want {
			t.Errorf("trace %q, want %q", c.Trace, want)
		}
		if c.ID == r.ID && (len(c.Recipients) != 2 || string(c.Custom) != string(r.Custom)) {
			t.Errorf("claimed %+v", c)
		}
	}
}

func TestSendAtWaits(t *testing.T) {
	t.Parallel()
	b := open(t)
	later, past := time.Now().Add(time.Hour), time.Now().Add(-time.Hour)
	r, overdue := b.request("acme", "later"), b.request("acme", "past")
	r.SendAt, overdue.SendAt = &later, &past
	b.accept(t, r, overdue)
	if taken := b.claimAll(t, 10); len(taken) != 1 || taken[0].ID != overdue.ID {
		t.Fatalf("claimed %+v", taken)
	}
	s, err := b.Status(t.Context(), r.ID)
	if err != nil || s.Gate.Name != "waiting" || s.Gate.Until == nil || s.Gate.Until.Sub(later).Abs() > time.Millisecond {
		t.Fatalf("%+v %v", s, err)
	}
}
