package watchdog

import (
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

func (s *site) sweep() {
	s.t.Helper()
	if err := s.sweepStuck(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) status(id delivery.ID) *delivery.Status {
	s.t.Helper()
	st, err := s.book.Status(s.t.Context(), id)
	if err != nil {
		s.t.Fatal(err)
	}
	return st
}

// perish has a worker take everything and die n times, each time found by a sweep.
func (s *site) perish(n int) {
	s.t.Helper()
	for range n {
		s.claim(time.Minute)
		s.die()
		s.sweep()
	}
}

func TestSweepLeavesTheLivingAndTheFence(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dead := s.accept("acme", 2)
	s.claim(time.Minute)
	s.die()
	living := s.accept("acme", 2)
	s.claim(time.Minute)
	s.sweep()
	for _, id := range dead {
		if st := s.status(id); st.State != delivery.Retry || st.Attempts != 1 || st.Retries != 1 || len(st.Tried) != 1 || string(st.Tried[0].Verdict) != "unknown" {
			t.Errorf("%+v", st)
		}
		if fence := value[int](s, `SELECT fence FROM queue WHERE id = $1 AND state = 'ready'`, [16]byte(id)); fence != 1 {
			t.Errorf("fence %d: only a claim raises it", fence)
		}
	}
	for _, id := range living {
		if st := s.status(id); st.State != delivery.Pending || !st.InWork {
			t.Errorf("%+v", st)
		}
	}
}

func TestSweepAsksThePolicyFirst(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cfg.RetryMail.OnUnknown = string(retry.UnknownHold)
	s.policy = s.cfg.RetryMail.Schedules()
	s.cfg.Poison = 1
	id := s.accept("acme", 1)[0]
	s.perish(1)
	if st := s.status(id); st.State != delivery.Held {
		t.Fatalf("%s, and it may have been sent", st.State)
	}
}

func TestSweepGivesUpWhatIsUsedUp(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cfg.RetryMail.MaxRetries = 1
	s.policy = s.cfg.RetryMail.Schedules()
	id := s.accept("acme", 1)[0]
	s.perish(2)
	if st := s.status(id); st.State != delivery.Dead || code(s, id) != exhausted {
		t.Fatalf("%s %s", st.State, code(s, id))
	}
}

func code(s *site, id delivery.ID) string {
	s.t.Helper()
	return value[string](s, `SELECT coalesce(answer ->> 'code', '') FROM delivery WHERE id = $1`, [16]byte(id))
}

// Whose worker dies three times in a row is not tried a fourth time by itself.
func TestSweepStopsPoison(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.accept("acme", 1)[0]
	s.perish(2)
	if st := s.status(id); st.State != delivery.Retry {
		t.Fatalf("after two: %s", st.State)
	}
	s.perish(1)
	if st := s.status(id); st.State != delivery.Dead || code(s, id) != poisonous || st.Attempts != 3 {
		t.Fatalf("after three: %s %s", st.State, code(s, id))
	}
	if n := value[int](s, `SELECT count(*) FROM queue`); n != 0 {
		t.Fatal("it is in the queue still")
	}
	if len(s.claim(time.Minute)) != 0 {
		t.Fatal("it was claimed again")
	}
}

// An attempt with an answer in between, or a result that came late after all, shows
// that it does not kill.
func TestSweepCountsDeathsInARow(t *testing.T) {
	t.Parallel()
	for _, between := range []string{"an answer", "a late result"} {
		t.Run(between, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			id := s.accept("acme", 1)[0]
			s.perish(2)
			taken := s.claim(time.Minute)
			refusal := ledger.Settlement{Claimed: taken[0], Verdict: delivery.Refused, Attempt: true, Cause: "attempt",
				Decision: retry.Decision{State: delivery.Retry, Answer: delivery.Answer{Category: delivery.Transient, Code: "451"}}}
			if between == "an answer" {
				if _, _, err := s.book.Settle(t.Context(), []ledger.Settlement{refusal}); err != nil {
					t.Fatal(err)
				}
			} else {
				s.exec(`DELETE FROM attempt WHERE fence = 2`)
				s.exec(`UPDATE queue SET state = 'ready', owner = NULL, claimed_at = NULL, fence = 2`)
				s.claim(time.Minute)
				s.die()
				s.sweep() // fence 3, and now its result comes
				if _, _, err := s.book.Late(t.Context(), refusal); err != nil {
					t.Fatal(err)
				}
			}
			s.exec(`UPDATE queue SET due_at = now() - interval '1 second'`)
			s.perish(2)
			if st := s.status(id); st.State != delivery.Retry || code(s, id) != recovered {
				t.Fatalf("%s %s", st.State, code(s, id))
			}
			s.perish(1)
			if st := s.status(id); st.State != delivery.Dead {
				t.Fatalf("%s %s", st.State, code(s, id))
			}
		})
	}
}

// More than two pages, and a row that no settle can write in the first of them.
func TestSweepPassesOverWhatItCannotSettle(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.accept("acme", 2*page+50)
	if n := len(s.claim(time.Minute)); n != len(ids) {
		t.Fatalf("%d claimed", n)
	}
	s.die()
	bad := value[[16]byte](s, `SELECT id FROM queue ORDER BY id OFFSET 100 LIMIT 1`)
	s.exec(`INSERT INTO event (aggregate, version, kind, state, subject, body) VALUES ($1, 2, 'delivery', 'sent', 's', '')`, bad)
	err := s.sweepStuck(t.Context())
	if err == nil || !strings.Contains(err.Error(), delivery.ID(bad).String()) {
		t.Fatalf("nobody is told: %v", err)
	}
	if n := value[int](s, `SELECT count(*) FROM queue WHERE state = 'leased'`); n != 1 {
		t.Fatalf("%d are stuck still", n)
	}
	if n := value[int](s, `SELECT count(*) FROM queue WHERE state = 'ready'`); n != len(ids)-1 {
		t.Fatalf("%d are ready again", n)
	}
}

// A list that is out of date overwrites nothing: meanwhile the delivery was found,
// taken again, and is in work.
func TestSweepWithAStaleList(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.accept("acme", 1)[0]
	s.claim(time.Minute)
	s.die()
	stale, err := s.book.Stuck(t.Context(), s.cfg.MaxHold, delivery.ID{}, page)
	if err != nil || len(stale) != 1 {
		t.Fatal(stale, err)
	}
	s.perish(1)
	s.exec(`UPDATE queue SET due_at = now() - interval '1 second'`)
	if n := len(s.claim(time.Minute)); n != 1 {
		t.Fatalf("%d claimed", n)
	}
	before := s.status(id)
	if err := s.settleStuck(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	if after := s.status(id); after.Version != before.Version || !after.InWork || len(after.Tried) != len(before.Tried) {
		t.Fatalf("before %+v, after %+v", before, after)
	}
}

func TestSweepLooksWhenTheEarliestLeaseLapses(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	if d := s.untilLapse(t.Context()); d != noWorker {
		t.Errorf("there is no worker, and it looks in %s", d)
	}
	s.accept("acme", 1)
	s.claim(10 * time.Second)
	s.accept("acme", 1)
	s.claim(5 * time.Minute)
	if d := s.untilLapse(t.Context()); d < lapseGrace || d > 10*time.Second+lapseGrace {
		t.Errorf("the earliest lapses within 10 s, and it looks in %s", d)
	}
	s.die()
	if d := s.untilLapse(t.Context()); d < lapseAgain || d > 2*lapseAgain {
		t.Errorf("a lease has lapsed, and it looks in %s", d)
	}
}

// A worker that lives and hangs beyond max_hold is given up, too.
func TestSweepEndsWhatIsHeldTooLong(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	id := s.accept("acme", 1)[0]
	s.claim(time.Hour)
	s.sweep()
	if st := s.status(id); st.State != delivery.Pending {
		t.Fatal(st.State)
	}
	s.exec(`UPDATE queue SET claimed_at = now() - interval '11 minutes'`)
	s.sweep()
	if st := s.status(id); st.State != delivery.Retry || code(s, id) != recovered {
		t.Fatalf("%s %s", st.State, code(s, id))
	}
}
