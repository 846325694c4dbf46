package watchdog

import (
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// "The deferral only applies while the transaction is younger than
// circuit-breaker.defer-max-duration. An older transaction falls back to the regular
// attempt counting."
func TestWhatWaitsTooLongForABreakerIsCounted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ids := s.accept("acme", 3)
	state := func(want delivery.State, attempts int) {
		t.Helper()
		for _, id := range ids {
			st, err := s.book.Status(t.Context(), id)
			if err != nil || st.State != want || st.Attempts != attempts {
				t.Fatalf("%s with %d attempts, want %s with %d (%v)", st.State, st.Attempts, want, attempts, err)
			}
		}
	}
	sweep := func(bound time.Duration) {
		t.Helper()
		s.cfg.DeferMax = bound
		if err := s.sweepDeferred(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.exec(`UPDATE lane SET breaker = 'open', shut_until = now() + interval '1 minute', opened_at = now(), failures = 5, shut_reason = 'connection refused'`)
	sweep(time.Hour) // younger: it costs nothing
	state(delivery.Pending, 0)
	s.exec(`UPDATE lane SET forced = true`)
	sweep(-time.Second) // maintenance by an operator has no bound
	state(delivery.Pending, 0)
	s.exec(`UPDATE lane SET forced = false`)
	for n := 1; n <= 6; n++ {
		sweep(-time.Second)
		if n < 6 {
			state(delivery.Retry, n)
			sweep(-time.Second) // it waits for its next attempt now
			state(delivery.Retry, n)
			s.exec(`UPDATE queue SET state = 'ready', due_at = now()`)
		}
	}
	state(delivery.Dead, 6)
	st, err := s.book.Status(t.Context(), ids[0])
	if err != nil || len(st.Tried) != 6 || st.Tried[5].Verdict != "refused" {
		t.Errorf("%+v %v", st, err)
	}
	var left int
	if err := s.db.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM queue) + (SELECT count(*) FROM worker WHERE instance LIKE '%/deferred')`).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d rows left behind: %v", left, err)
	}
}
