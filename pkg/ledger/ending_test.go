package ledger_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

func TestExpire(t *testing.T) {
	t.Parallel()
	b := open(t)
	past, future := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	old, fresh, never := b.request("acme", "old"), b.request("acme", "fresh"), b.request("acme", "never")
	old.ExpiresAt, fresh.ExpiresAt = &past, &future
	b.accept(t, old, fresh, never)
	due, err := b.Overdue(t.Context(), 10)
	if err != nil || len(due) != 1 || due[0] != old.ID {
		t.Fatalf("overdue: %v %v", due, err)
	}
	for _, r := range []ledger.Acceptance{fresh, never} {
		if _, ended, err := b.Expire(t.Context(), r.ID); err != nil || ended {
			t.Errorf("expired %s: %v %v", r.RequestID, ended, err)
		}
	}
	events, ended, err := b.Expire(t.Context(), old.ID)
	if err != nil || !ended || len(events.Messages) != 1 {
		t.Fatalf("%v %v", ended, err)
	}
	if _, ended, err = b.Expire(t.Context(), old.ID); err != nil || ended {
		t.Fatalf("twice: %v %v", ended, err)
	}
	if s := b.status(t, old.ID); s.State != delivery.Expired || s.Version != 2 || s.Attempts != 0 || len(s.Tried) != 0 {
		t.Fatalf("%+v", s)
	}
	if _, _, err := b.Expire(t.Context(), delivery.NewID()); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("of nothing: %v", err)
	}
}

func TestAClaimTellsThatItIsTooLate(t *testing.T) {
	t.Parallel()
	b := open(t)
	past := time.Now().Add(-time.Minute)
	k := b.one(t, func(r *ledger.Acceptance) { r.ExpiresAt = &past })
	if !k.Expired {
		t.Fatal("not told")
	}
	if due, err := b.Overdue(t.Context(), 10); err != nil || len(due) != 0 {
		t.Errorf("leased work is listed as overdue: %v %v", due, err)
	}
	if _, ended, err := b.Expire(t.Context(), k.ID); err != nil || ended {
		t.Errorf("expired under a lease: %v %v", ended, err)
	}
	s := ledger.Settlement{Claimed: k, Cause: "expires_at", Decision: retry.Decision{State: delivery.Expired}}
	b.settle(t, ledger.Moved, s)
	if got := b.status(t, k.ID); got.State != delivery.Expired || got.Attempts != 0 || len(got.Tried) != 0 {
		t.Fatalf("%+v", got)
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	b := open(t)
	waiting := b.one(t)
	s := result(waiting, delivery.Retry, delivery.Refused)
	s.Decision.Delay = time.Hour
	b.settle(t, ledger.Moved, s)
	held := b.one(t)
	b.settle(t, ledger.Moved, unknown(held, delivery.Held))
	ready := b.request("acme", "ready")
	b.accept(t, ready)
	for _, id := range []delivery.ID{waiting.ID, held.ID, ready.ID} {
		before := b.status(t, id)
		events, ended, err := b.Cancel(t.Context(), id, "by\x00mistake\n")
		if err != nil || !ended || len(events.Messages) != 1 {
			t.Fatalf("%v %v", ended, err)
		}
		if got := b.status(t, id); got.State != delivery.Cancelled || got.Version != before.Version+1 || got.Attempts != before.Attempts || got.Gate.Name != "final" {
			t.Errorf("%+v", got)
		}
		if _, ended, err := b.Cancel(t.Context(), id, ""); err != nil || ended {
			t.Errorf("twice: %v %v", ended, err)
		}
	}
	if n := b.count(t, "SELECT count(*) FROM queue"); n != 0 {
		t.Errorf("%d rows in the queue", n)
	}
}

// What is called back while somebody claims it is either in work or called back.
func TestCancelAgainstAClaim(t *testing.T) {
	t.Parallel()
	b := open(t)
	w := b.join(t, time.Hour)
	cancelled := 0
	for range 60 {
		r := b.request("acme", delivery.NewID().String())
		b.accept(t, r)
		var wg sync.WaitGroup
		var ended bool
		var taken []ledger.Claimed
		wg.Go(func() {
			var err error
			if _, ended, err = b.Cancel(t.Context(), r.ID, ""); err != nil {
				t.Error(err)
			}
		})
		wg.Go(func() { taken = b.claim(t, w, 1, "acme") })
		wg.Wait()
		if ended == (len(taken) == 1) {
			t.Fatalf("cancelled %v, claimed %d", ended, len(taken))
		}
		if ended {
			cancelled++
			continue
		}
		b.settle(t, ledger.Moved, sent(taken[0]))
	}
	t.Logf("%d of 60 were cancelled before they were claimed", cancelled)
}

// The fence never goes back, whatever happened to a claim that left no attempt.
func TestTheFenceOutlivesAClaimWithoutAttempt(t *testing.T) {
	t.Parallel()
	b := open(t)
	k := b.one(t)
	if err := b.GiveBack(t.Context(), []ledger.Settlement{{Claimed: k}}); err != nil {
		t.Fatal(err)
	}
	if _, ended, err := b.Cancel(t.Context(), k.ID, ""); err != nil || !ended {
		t.Fatal(ended, err)
	}
	if n := b.count(t, "SELECT fence FROM delivery WHERE id = $1", [16]byte(k.ID)); n != int(k.Fence) {
		t.Errorf("the delivery says fence %d after a claim with fence %d", n, k.Fence)
	}
}
