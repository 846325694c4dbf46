package ledger_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

func (b *book) join(t testing.TB, term time.Duration) uuid.UUID {
	t.Helper()
	worker, err := b.Join(t.Context(), "test", term)
	if err != nil {
		t.Fatal(err)
	}
	return worker
}

func (b *book) group(tenant string) claim.Group {
	return claim.Group{Lane: b.lane, Tenant: tenant, Class: int16(delivery.Transactional)}
}

func (b *book) claim(t testing.TB, worker uuid.UUID, n int, tenants ...string) []ledger.Claimed {
	t.Helper()
	var turns []claim.Turn
	for _, tenant := range tenants {
		turns = append(turns, claim.Turn{Group: b.group(tenant), N: n})
	}
	taken, _, err := b.work.Claim(t.Context(), worker, turns)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

func (b *book) acceptMany(t testing.TB, tenant string, n int) {
	t.Helper()
	batch := make([]ledger.Acceptance, n)
	for i := range batch {
		batch[i] = b.request(tenant, fmt.Sprint(i))
	}
	b.accept(t, batch...)
}

func TestNIsRespected(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.acceptMany(t, "a", 20)
	b.acceptMany(t, "b", 3)
	w := b.join(t, time.Minute)
	for _, n := range []int{1, 2, 5} {
		taken := b.claim(t, w, n, "a", "b")
		got := map[string]int{}
		for i, c := range taken {
			got[c.Tenant]++
			if c.Fence != 1 || c.Worker != w || i > 0 && taken[i-1].Tenant == c.Tenant && taken[i-1].DueAt.After(c.DueAt) {
				t.Errorf("claimed %+v", c)
			}
		}
		if got["a"] != n || got["b"] > n {
			t.Errorf("asked for %d of each, got %v", n, got)
		}
	}
	if n := b.count(t, "SELECT count(*) FROM queue WHERE state = 'leased' AND owner = $1", w); n != 8+3 {
		t.Errorf("%d leased", n)
	}
}

func TestTwoClaimersNeverTakeTheSame(t *testing.T) {
	t.Parallel()
	b := open(t)
	const total, workers = 600, 4
	b.acceptMany(t, "a", total)
	var mu sync.Mutex
	seen := map[delivery.ID]int{}
	var wg sync.WaitGroup
	for range workers {
		w := b.join(t, time.Minute)
		wg.Go(func() {
			for miss := 0; miss < 3; {
				taken, _, err := b.work.Claim(t.Context(), w, []claim.Turn{{Group: b.group("a"), N: 7}})
				if err != nil {
					t.Error(err)
					return
				}
				if len(taken) > 7 {
					t.Errorf("asked for 7, got %d", len(taken))
				}
				if len(taken) == 0 {
					miss++
				}
				mu.Lock()
				for _, c := range taken {
					seen[c.ID]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(seen) != total {
		t.Errorf("%d of %d were claimed", len(seen), total)
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%s was claimed %d times", id, n)
		}
	}
}

func TestShutAndPausedLanesAreSkipped(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set  string
		skip bool
	}{
		{"shut_until = now() + interval '1 minute'", true}, {"paused_until = 'infinity'", true},
		{"shut_until = now() - interval '1 second'", false}, {"paused_until = now() - interval '1 second', shut_until = NULL", false},
	} {
		t.Run(c.set, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			b.acceptMany(t, "a", 2)
			b.exec(t, "UPDATE lane SET "+c.set)
			glance, err := b.work.Look(t.Context(), claim.Group{}, 10)
			if err != nil || len(glance.Found) != 1 || glance.Found[0].Shut != c.skip {
				t.Fatalf("%+v %v", glance, err)
			}
			var before, after string
			const trace = "SELECT string_agg(ctid::text || xmin, ',' ORDER BY id) FROM queue"
			_ = b.db.QueryRow(t.Context(), trace).Scan(&before)
			if taken := b.claim(t, b.join(t, time.Minute), 10, "a"); (len(taken) == 0) != c.skip {
				t.Fatalf("claimed %d", len(taken))
			}
			_ = b.db.QueryRow(t.Context(), trace).Scan(&after)
			if c.skip && before != after {
				t.Fatal("a skip has written rows")
			}
		})
	}
}

func TestLookPagesInOrderAndPromotes(t *testing.T) {
	t.Parallel()
	b := open(t)
	for i := range 25 {
		r := b.request(fmt.Sprintf("t%02d", i), "1")
		r.Class = delivery.Class(i % 3)
		b.accept(t, r)
	}
	soon := time.Now().Add(time.Hour)
	late := b.request("zz", "1")
	late.SendAt = &soon
	b.accept(t, late)

	var cursor claim.Group
	var all []claim.Group
	for range 10 {
		glance, err := b.work.Look(t.Context(), cursor, 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range glance.Found {
			all, cursor = append(all, f.Group), f.Group
		}
		if len(glance.Found) < 10 {
			break
		}
		if glance.NextDue < 59*time.Minute || glance.NextDue > time.Hour {
			t.Errorf("next due in %s", glance.NextDue)
		}
	}
	if len(all) != 25 {
		t.Fatalf("%d groups: %v", len(all), all)
	}
	for i, g := range all {
		if g.Tenant != fmt.Sprintf("t%02d", i) {
			t.Fatalf("group %d is %v", i, g)
		}
	}
	b.exec(t, "UPDATE queue SET due_at = now() WHERE tenant = 'zz'")
	glance, err := b.work.Look(t.Context(), all[24], 10)
	if err != nil || len(glance.Promoted) != 1 || glance.Promoted[0].Tenant != "zz" || len(glance.Found) != 1 || glance.NextDue >= 0 {
		t.Fatalf("%+v %v", glance, err)
	}
}

// A claim reads the delivery as it was when its statement began, but locks the
// queue row as it is. When the row went through other hands in between, the two do
// not belong together: who had already been sent to would be sent to again.
func TestAClaimDoesNotMixOldAndNew(t *testing.T) {
	t.Parallel()
	b := open(t)
	first, second := b.request("a", "1"), b.request("a", "2")
	second.Recipients = []string{"done@example.test", "open@example.test"}
	b.accept(t, first, second)
	// The slow claim stands still between its two rows.
	b.exec(t, `CREATE FUNCTION stand_still() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NEW; END $$`)
	b.exec(t, fmt.Sprintf(`CREATE TRIGGER stand_still BEFORE UPDATE ON queue FOR EACH ROW WHEN (NEW.id = '%s') EXECUTE FUNCTION stand_still()`, first.ID))
	hold, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hold.Exec(t.Context(), `SELECT pg_advisory_xact_lock(4711)`); err != nil {
		t.Fatal(err)
	}
	slow, fast := b.join(t, time.Minute), b.join(t, time.Minute)
	var taken []ledger.Claimed
	done := make(chan error, 1)
	go func() {
		var err error
		taken, _, err = b.work.Claim(t.Context(), slow, []claim.Turn{{Group: b.group("a"), N: 2}})
		done <- err
	}()
	waitFor(t, func() bool {
		return b.count(t, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = 4711`) == 1
	})
	// Meanwhile the second goes through a whole attempt and is ready again.
	others := b.claim(t, fast, 2, "a")
	if len(others) != 1 || others[0].ID != second.ID {
		t.Fatalf("the other claimed %+v", others)
	}
	s := ledger.Settlement{Claimed: others[0], Verdict: delivery.Refused, Attempt: true, Cause: "attempt", Decision: retry.Decision{State: delivery.Retry,
		Recipients: []delivery.RecipientOutcome{{Ordinal: 0, Verdict: delivery.Accepted}}}}
	if r, _, err := b.Settle(t.Context(), []ledger.Settlement{s}); err != nil || r[0] != ledger.Moved {
		t.Fatal(r, err)
	}
	if _, err := b.work.Look(t.Context(), claim.Group{}, 1); err != nil {
		t.Fatal(err)
	}
	if err := hold.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for _, c := range taken {
		if c.ID == second.ID && (len(c.Recipients) != 1 || c.Retries != 1 || c.State != delivery.Retry) {
			t.Errorf("claimed at version %d with what was known at version 1: %+v", c.Version, c)
		}
	}
	next := b.claim(t, slow, 5, "a")
	if len(taken) != 1 || len(next) != 1 || next[0].ID != second.ID || len(next[0].Recipients) != 1 || next[0].Retries != 1 {
		t.Errorf("claimed %d, then %+v", len(taken), next)
	}
}

func TestReturnGivesBackOnlyWhatIsUnknown(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.acceptMany(t, "a", 9)
	w, other := b.join(t, time.Minute), b.join(t, time.Minute)
	old, lost, kept, foreign := b.claim(t, w, 2, "a"), []ledger.Claimed(nil), []ledger.Claimed(nil), b.claim(t, other, 2, "a")
	lost, kept = b.claim(t, w, 2, "a"), b.claim(t, w, 2, "a")
	if err := b.work.Return(t.Context(), w, old[1].Since(), []claim.Known{{Key: kept[0].Key(), Since: kept[0].Since()}, {Key: kept[1].Key(), Since: kept[1].Since()}}); err != nil {
		t.Fatal(err)
	}
	ready := map[delivery.ID]bool{}
	for _, c := range b.claim(t, w, 9, "a") {
		ready[c.ID] = true
		if (c.ID == lost[0].ID || c.ID == lost[1].ID) && c.Fence != 2 {
			t.Errorf("fence %d after a return", c.Fence)
		}
	}
	for name, list := range map[string][]ledger.Claimed{"old": old, "lost": lost, "kept": kept, "foreign": foreign} {
		for _, c := range list {
			if ready[c.ID] != (name == "lost") {
				t.Errorf("%s one: claimable is %v", name, ready[c.ID])
			}
		}
	}
	if err := b.work.Return(t.Context(), w, time.Time{}, nil); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, "SELECT count(*) FROM queue WHERE owner = $1", w); n != 0 {
		t.Errorf("%d rows kept after a return of everything", n)
	}
}

func TestWorkersLease(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.acceptMany(t, "a", 1)
	w := b.join(t, time.Minute)
	if err := b.Renew(t.Context(), w, time.Minute); err != nil {
		t.Fatal(err)
	}
	taken := b.claim(t, w, 1, "a")
	if d, err := b.NextLapse(t.Context()); err != nil || d < 50*time.Second || d > time.Minute {
		t.Errorf("next lapse in %s, %v", d, err)
	}
	if err := b.Leave(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, "SELECT count(*) FROM worker"); n != 1 {
		t.Error("a worker left although it holds work")
	}
	b.exec(t, "UPDATE worker SET lease_until = now() - interval '2 minutes'")
	if err := b.Renew(t.Context(), w, time.Minute); err != claim.ErrLapsed {
		t.Errorf("renewed a lapsed lease: %v", err)
	}
	if err := b.ForgetWorkers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, "SELECT count(*) FROM worker"); n != 1 {
		t.Error("a worker was forgotten although it holds work")
	}
	if _, _, err := b.Settle(t.Context(), []ledger.Settlement{sent(taken[0])}); err != nil {
		t.Fatal(err)
	}
	if err := b.ForgetWorkers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, "SELECT count(*) FROM worker"); n != 0 {
		t.Error("a lapsed worker without work was not forgotten")
	}
	if d, err := b.NextLapse(t.Context()); err != nil || d >= 0 {
		t.Errorf("next lapse in %s, %v", d, err)
	}
}
