package ledger_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

func (b *book) lapse(t testing.TB, worker uuid.UUID) {
	t.Helper()
	b.exec(t, "UPDATE worker SET lease_until = clock_timestamp() - interval '2 seconds' WHERE id = $1", [16]byte(worker))
}

func (b *book) stuck(t testing.TB, maxHold time.Duration, limit int) []ledger.Claimed {
	t.Helper()
	var all []ledger.Claimed
	var after delivery.ID
	for {
		page, err := b.Stuck(t.Context(), maxHold, after, limit)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, page...)
		if len(page) < limit {
			return all
		}
		after = page[len(page)-1].ID
	}
}

// unknown is what the sweep makes of an attempt without a result.
func unknown(c ledger.Claimed, state delivery.State) ledger.Settlement {
	s := result(c, state, delivery.Unknown)
	s.Cause = "lease lapsed"
	return s
}

func TestStuckListsWhatNobodyLooksAfter(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.acceptMany(t, "acme", 20)
	alive, gone, forgotten := b.join(t, time.Minute), b.join(t, time.Minute), b.join(t, time.Minute)
	kept, left, lost := b.claim(t, alive, 4, "acme"), b.claim(t, gone, 7, "acme"), b.claim(t, forgotten, 2, "acme")
	if n := len(b.stuck(t, time.Hour, 3)); n != 0 {
		t.Fatalf("%d stuck while all leases hold", n)
	}
	b.lapse(t, gone)
	b.exec(t, "DELETE FROM worker WHERE id = $1", [16]byte(forgotten))
	want := map[delivery.ID]ledger.Claimed{}
	for _, c := range append(left, lost...) {
		want[c.ID] = c
	}
	found := b.stuck(t, time.Hour, 3) // several pages
	for i, c := range found {
		w, ok := want[c.ID]
		if !ok || c.Worker != w.Worker || c.Fence != w.Fence || c.Version != w.Version || len(c.Recipients) != 1 || !c.ClaimedAt.Equal(w.ClaimedAt) {
			t.Errorf("found %+v", c)
		}
		if i > 0 && found[i-1].ID.String() >= c.ID.String() {
			t.Error("pages overlap")
		}
	}
	if len(found) != len(want) {
		t.Errorf("found %d, want %d", len(found), len(want))
	}
	// Held too long although the worker is alive.
	b.exec(t, "UPDATE queue SET claimed_at = claimed_at - interval '20 minutes' WHERE id = $1", [16]byte(kept[0].ID))
	if n := len(b.stuck(t, 10*time.Minute, 100)); n != len(want)+1 {
		t.Errorf("%d stuck with a hold of 10 minutes", n)
	}
}

// The worker comes back just when the sweep settles its attempt: one of them wins,
// each time, and the loser changes nothing.
func TestSweepAgainstTheRealWorker(t *testing.T) {
	t.Parallel()
	b := open(t)
	const rounds = 200
	var swept, late int
	batch := make([]ledger.Acceptance, rounds)
	for i := range batch {
		batch[i] = b.request("acme", fmt.Sprint(i))
	}
	b.accept(t, batch...)
	worker := b.join(t, time.Minute)
	taken := b.claim(t, worker, rounds, "acme")
	b.lapse(t, worker)
	found := map[delivery.ID]ledger.Claimed{}
	for _, c := range b.stuck(t, time.Hour, 200) {
		found[c.ID] = c
	}
	for i, c := range taken {
		var wg sync.WaitGroup
		var mine, theirs []ledger.Settled
		wg.Go(func() {
			var err error
			if mine, _, err = b.Settle(t.Context(), []ledger.Settlement{sent(c)}); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() {
			var err error
			if theirs, _, err = b.Settle(t.Context(), []ledger.Settlement{unknown(found[c.ID], delivery.Retry)}); err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		if (mine[0] == ledger.Moved) == (theirs[0] == ledger.Moved) {
			t.Fatalf("round %d: worker %s, sweep %s", i, mine[0], theirs[0])
		}
		if theirs[0] == ledger.Moved {
			swept++
			accepted, events, err := b.Late(t.Context(), sent(c))
			if err != nil || !accepted || len(events.Messages) != 1 {
				t.Fatalf("round %d: a late acceptance that nobody contradicts: %v %v", i, accepted, err)
			}
			late++
		}
		if s := b.status(t, c.ID); s.State != delivery.Sent {
			t.Fatalf("round %d: %+v", i, s)
		}
	}
	t.Logf("the sweep won %d of %d, %d were accepted late", swept, rounds, late)
}

func TestALateResult(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		sweep    delivery.State // what the sweep made of the attempt
		again    bool           // claimed by somebody else since
		result   delivery.State
		accepted bool
	}{
		{"accepted, retry since", delivery.Retry, false, delivery.Sent, true},
		{"accepted, held since", delivery.Held, false, delivery.Sent, true},
		{"accepted, dead since", delivery.Dead, false, delivery.Sent, true},
		{"accepted, failed since", delivery.Failed, false, delivery.Sent, false},
		{"accepted, claimed since", delivery.Retry, true, delivery.Sent, false},
		{"refused, retry since", delivery.Retry, false, delivery.Retry, false},
		{"refused for good, retry since", delivery.Retry, false, delivery.Failed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			k := b.one(t, func(r *ledger.Acceptance) { r.Recipients = []string{"a@x.test", "b@x.test"} })
			b.settle(t, ledger.Moved, unknown(k, c.sweep))
			if c.again {
				if _, err := b.work.Look(t.Context(), k.Group(), 1); err != nil {
					t.Fatal(err)
				}
				if again := b.claim(t, b.join(t, time.Minute), 1, "acme"); len(again) != 1 || again[0].Fence != 2 {
					t.Fatalf("claimed %+v", again)
				}
			}
			s := sent(k)
			if c.result != delivery.Sent {
				s = result(k, c.result, delivery.Refused)
			}
			b.settle(t, ledger.Stale, s)
			for i := range 2 { // repeated after a lost answer
				accepted, events, err := b.Late(t.Context(), s)
				if err != nil || accepted != (c.accepted && i == 0) || (len(events.Messages) == 1) != accepted {
					t.Fatalf("late %d: %v, %d messages, %v", i, accepted, len(events.Messages), err)
				}
			}
			got, want := b.status(t, k.ID), c.sweep
			if c.accepted {
				want = delivery.Sent
			}
			var verdicts []string
			for _, a := range got.Tried {
				verdicts = append(verdicts, a.Verdict)
			}
			if got.State != want || got.Attempts != 1 || fmt.Sprint(verdicts) != "[unknown late]" || len(got.Journey) != got.Version {
				t.Fatalf("%+v", got)
			}
			if n := b.count(t, "SELECT count(*) FROM attempt WHERE verdict = 'late' AND answer ->> 'verdict' = $1", s.Verdict.String()); n != 1 {
				t.Error("the evidence does not say what the late result was")
			}
			if c.accepted {
				if n := b.count(t, "SELECT count(*) FROM queue"); n != 0 {
					t.Error("still in the queue")
				}
				for _, r := range got.Recipients {
					if r.State != delivery.RecipientAccepted {
						t.Errorf("recipient %+v", r)
					}
				}
			}
		})
	}
	t.Run("of nothing", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		if _, _, err := b.Late(t.Context(), sent(ledger.Claimed{ID: delivery.NewID(), Channel: "mail", Tenant: "acme"})); err == nil {
			t.Fatal("no error")
		}
	})
}
