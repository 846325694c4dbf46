package ledger_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

func (b *book) ordered(tenant, key, id string) ledger.Acceptance {
	r := b.request(tenant, id)
	r.OrderingKey = key
	return r
}

func (b *book) gate(t testing.TB, id delivery.ID, want string) {
	t.Helper()
	if got := b.status(t, id).Gate.Name; got != want {
		t.Fatalf("gate %s, want %s", got, want)
	}
}

func TestAHeadBlocksItsKey(t *testing.T) {
	t.Parallel()
	b := open(t)
	first, second, third := b.ordered("acme", "k", "1"), b.ordered("acme", "k", "2"), b.ordered("acme", "k", "3")
	free, foreign := b.ordered("acme", "other", "4"), b.ordered("globex", "k", "5")
	b.accept(t, first, second, free, foreign)
	b.accept(t, third)
	for _, r := range []ledger.Acceptance{second, third} {
		b.gate(t, r.ID, "blocked")
	}
	w := b.join(t, time.Minute)
	if taken := b.claim(t, w, 10, "acme", "globex"); len(taken) != 3 {
		t.Fatalf("claimed %d", len(taken))
	} else {
		for _, c := range taken {
			if c.ID == first.ID {
				s := result(c, delivery.Retry, delivery.Refused)
				s.Decision.Delay = time.Hour
				b.settle(t, ledger.Moved, s)
			}
		}
	}
	b.gate(t, first.ID, "waiting") // a waiting head blocks
	b.gate(t, second.ID, "blocked")
	if _, _, err := b.Cancel(t.Context(), third.ID, ""); err != nil { // the end of one behind releases nothing
		t.Fatal(err)
	}
	b.gate(t, second.ID, "blocked")
	b.exec(t, "UPDATE queue SET due_at = now() WHERE id = $1", [16]byte(first.ID))
	if _, err := b.work.Look(t.Context(), claim.Group{}, 1); err != nil {
		t.Fatal(err)
	}
	taken := b.claim(t, w, 10, "acme")
	if len(taken) != 1 || taken[0].ID != first.ID {
		t.Fatalf("claimed %+v", taken)
	}
	b.settle(t, ledger.Moved, unknown(taken[0], delivery.Held))
	b.gate(t, second.ID, "blocked") // a held one, too
	if accepted, _, err := b.Late(t.Context(), sent(taken[0])); err != nil || !accepted {
		t.Fatal(accepted, err)
	}
	b.gate(t, second.ID, "ready")
}

// A machine whose clock is behind accepts later with a smaller id: the order is
// that of acceptance, and no more than one is ever on its way.
func TestOrderIsThatOfAcceptanceNotOfClocks(t *testing.T) {
	t.Parallel()
	b := open(t)
	now := time.Now()
	var want []delivery.ID
	for i, off := range []time.Duration{0, time.Second, -time.Minute, -time.Hour, time.Minute} {
		r := b.ordered("acme", "k", fmt.Sprint(i))
		r.ID = idAt(now.Add(off))
		b.accept(t, r)
		want = append(want, r.ID)
	}
	w := b.join(t, time.Minute)
	head := b.claim(t, w, 10, "acme")
	if len(head) != 1 {
		t.Fatalf("claimed %d", len(head))
	}
	b.settle(t, ledger.Moved, unknown(head[0], delivery.Retry))
	if _, ended, err := b.Cancel(t.Context(), want[1], ""); err != nil || !ended {
		t.Fatal(ended, err)
	}
	want = slices.Delete(want, 1, 2)
	var got []delivery.ID
	for range want {
		if _, err := b.work.Look(t.Context(), claim.Group{}, 1); err != nil {
			t.Fatal(err)
		}
		taken := b.claim(t, w, 10, "acme")
		if len(taken) != 1 {
			t.Fatalf("%d of one key on their way at once", len(taken))
		}
		got = append(got, taken[0].ID)
		b.settle(t, ledger.Moved, sent(taken[0]))
	}
	if !slices.Equal(got, want) {
		t.Fatalf("order %v, want %v", got, want)
	}
}

// Several intakes, workers and an operator at once: per key nobody overtakes,
// nobody is two, nobody is left.
func TestOrderUnderConcurrency(t *testing.T) {
	t.Parallel()
	b := open(t)
	const keys, perWriter, writers, workers = 4, 30, 3, 3
	var mu sync.Mutex
	inWork := map[string]int{}
	done := map[string][]delivery.ID{}
	ended := map[delivery.ID]bool{}
	var accepting, working sync.WaitGroup
	for w := range writers {
		accepting.Go(func() {
			for i := 0; i < perWriter; i += 3 {
				var batch []ledger.Acceptance
				for n := range 3 {
					batch = append(batch, b.ordered("acme", fmt.Sprint("k", (i+n+w)%keys), fmt.Sprintf("%d-%d", w, i+n)))
				}
				if _, _, err := b.Accept(t.Context(), batch); err != nil {
					t.Error(err)
				}
				if victim := batch[i%3]; i%4 == 0 {
					if _, ok, err := b.Cancel(t.Context(), victim.ID, ""); err != nil {
						t.Error(err)
					} else if ok {
						mu.Lock()
						ended[victim.ID] = true
						mu.Unlock()
					}
				}
			}
		})
	}
	total := func() int { mu.Lock(); defer mu.Unlock(); return len(ended) }
	for range workers {
		worker := b.join(t, time.Hour)
		working.Go(func() {
			random := rand.New(rand.NewPCG(1, 2))
			for deadline := time.Now().Add(30 * time.Second); total() < writers*perWriter && time.Now().Before(deadline); {
				if _, err := b.work.Look(t.Context(), claim.Group{}, 10); err != nil {
					t.Error(err)
				}
				taken, _, err := b.work.Claim(t.Context(), worker, []claim.Turn{{Group: b.group("acme"), N: 5}})
				if err != nil {
					t.Error(err)
				}
				for _, c := range taken {
					mu.Lock()
					if inWork[c.Ordering]++; inWork[c.Ordering] > 1 {
						t.Errorf("two of key %s in work", c.Ordering)
					}
					mu.Unlock()
				}
				for _, c := range taken {
					s := sent(c)
					again := random.IntN(4) == 0
					if again {
						s = result(c, delivery.Retry, delivery.Refused)
					}
					mu.Lock()
					inWork[c.Ordering]--
					if !again {
						done[c.Ordering] = append(done[c.Ordering], c.ID)
						ended[c.ID] = true
					}
					mu.Unlock()
					if r, _, err := b.Settle(t.Context(), []ledger.Settlement{s}); err != nil || r[0] != ledger.Moved {
						t.Error(r, err)
					}
				}
			}
		})
	}
	accepting.Wait()
	working.Wait()
	if n := b.count(t, "SELECT count(*) FROM queue"); n != 0 {
		t.Fatalf("%d are left in the queue", n)
	}
	for key, ids := range done {
		var order []delivery.ID
		rows, err := b.db.Query(t.Context(), `SELECT id FROM delivery WHERE ordering_key = $1 AND state = 'sent' ORDER BY changed_at`, key)
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			var id [16]byte
			if err := rows.Scan(&id); err != nil {
				t.Fatal(err)
			}
			order = append(order, id)
		}
		if !slices.Equal(order, ids) {
			t.Errorf("key %s: sent in the order %v, settled %v", key, ids, order)
		}
	}
}

// A late result ends a head while a new one of its key is being accepted.
func TestLateAgainstAcceptOfTheSameKey(t *testing.T) {
	t.Parallel()
	b := open(t)
	for i := range 40 {
		key := fmt.Sprint("k", i)
		k := b.one(t, func(r *ledger.Acceptance) { r.OrderingKey = key })
		b.settle(t, ledger.Moved, unknown(k, delivery.Held))
		next := b.ordered("acme", key, fmt.Sprint("next", i))
		var wg sync.WaitGroup
		wg.Go(func() {
			if accepted, _, err := b.Late(t.Context(), sent(k)); err != nil || !accepted {
				t.Error(accepted, err)
			}
		})
		wg.Go(func() {
			if _, _, err := b.Accept(t.Context(), []ledger.Acceptance{next}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		b.gate(t, next.ID, "ready")
	}
}
