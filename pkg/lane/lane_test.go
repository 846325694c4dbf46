package lane_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/retry"
	"github.com/posthouse-io/posthouse/streams"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// place is a private database with one lane in it, and what was published of it.
type place struct {
	*lane.Lanes
	book *ledger.Ledger
	work ledger.Deliveries
	db   *pgxpool.Pool
	id   int32

	mu   sync.Mutex
	told []outbox.Message
}

func open(t *testing.T) *place {
	t.Helper()
	db, err := pgxpool.New(t.Context(), localtest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	p := &place{book: ledger.New(db), db: db}
	p.Lanes = lane.New(db, func(b outbox.Batch) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.told = append(p.told, b.Messages...)
	})
	p.work = ledger.Deliveries{Ledger: p.book, HalfOpen: p.halfOpen(t)}
	if p.id, err = lane.ID(t.Context(), db, "mail$test", "delivery"); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *place) subjects() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s []string
	for _, m := range p.told {
		s = append(s, m.Subject)
	}
	return s
}

// fill accepts n requests of a tenant.
func (p *place) fill(t *testing.T, tenant string, n int) {
	t.Helper()
	var all []ledger.Acceptance
	for i := range n {
		id := fmt.Sprint(tenant, i, delivery.NewID())
		all = append(all, ledger.Acceptance{ID: delivery.NewID(), Tenant: tenant, Channel: delivery.Mail, RequestID: id, BodyHash: sha256.Sum256([]byte(id)),
			Class: delivery.Transactional, Lane: p.id, Recipients: []string{"a@example.test"}, Prepared: []byte("x")})
	}
	if _, _, err := p.book.Accept(t.Context(), all); err != nil {
		t.Fatal(err)
	}
}

// claim takes up to n as a worker of its own.
func (p *place) claim(t *testing.T, n int) ([]ledger.Claimed, []claim.Full) {
	t.Helper()
	w, err := p.book.Join(t.Context(), "test", time.Minute)
	if err != nil {
		t.Error(err)
	}
	g, err := p.work.Look(t.Context(), claim.Group{}, 100)
	if err != nil {
		t.Error(err)
	}
	var turns []claim.Turn
	for _, f := range g.Found {
		if !f.Shut {
			turns = append(turns, claim.Turn{Group: f.Group, N: n})
		}
	}
	if len(turns) == 0 {
		return nil, nil
	}
	taken, full, err := p.work.Claim(t.Context(), w, turns)
	if err != nil {
		t.Error(err)
	}
	return taken, full
}

// atOnce has eight workers claim n each.
func (p *place) atOnce(t *testing.T, n int) []ledger.Claimed {
	t.Helper()
	var mu sync.Mutex
	var all []ledger.Claimed
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			taken, _ := p.claim(t, n)
			mu.Lock()
			all = append(all, taken...)
			mu.Unlock()
		})
	}
	wg.Wait()
	return all
}

func (p *place) settle(t *testing.T, c ledger.Claimed) {
	t.Helper()
	s := ledger.Settlement{Claimed: c, Verdict: delivery.Accepted, Attempt: true, Cause: "attempt", Decision: retry.Decision{State: delivery.Sent, Answer: delivery.Answer{Code: "250"}}}
	for _, r := range c.Recipients {
		s.Decision.Recipients = append(s.Decision.Recipients, delivery.RecipientOutcome{Ordinal: r.Ordinal, Verdict: delivery.Accepted})
	}
	if res, _, err := p.book.Settle(t.Context(), []ledger.Settlement{s}); err != nil || res[0] != ledger.Moved {
		t.Fatal(res, err)
	}
}

func (p *place) set(t *testing.T, sql string) {
	t.Helper()
	if _, err := p.db.Exec(t.Context(), "UPDATE lane SET "+sql+" WHERE key = 'mail$test'"); err != nil {
		t.Fatal(err)
	}
}

func (p *place) view(t *testing.T) lane.View {
	t.Helper()
	v, err := p.View(t.Context(), p.id)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func (p *place) trip(t *testing.T, probes int) lane.View {
	t.Helper()
	v, changed, err := p.Open(t.Context(), p.id, lane.Trip{Failures: 5, Cause: "connection refused", For: time.Minute, Probes: probes, Text: "suspended"})
	if err != nil || !changed || v.Breaker != lane.Open {
		t.Fatal(v, changed, err)
	}
	return v
}

func (p *place) halfOpen(t *testing.T) func(context.Context, int32) error {
	return func(c context.Context, id int32) error {
		_, _, err := p.Lanes.HalfOpen(c, id)
		return err
	}
}

func TestAnOpenLaneIsSkippedAndNothingIsWritten(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill(t, "a", 20)
	p.trip(t, 1)
	if _, changed, err := p.Open(t.Context(), p.id, lane.Trip{Failures: 7, For: time.Hour}); changed || err != nil {
		t.Errorf("a second trip of an open lane: %v %v", changed, err)
	}
	if v := p.view(t); v.Failures != 5 || time.Until(v.ShutUntil) > time.Minute {
		t.Errorf("the second trip has changed it: %+v", v)
	}
	if got := p.atOnce(t, 5); len(got) != 0 {
		t.Errorf("%d claimed of an open lane", len(got))
	}
	var touched int
	if err := p.db.QueryRow(t.Context(), "SELECT count(*) FROM queue WHERE fence > 0 OR state <> 'ready'").Scan(&touched); err != nil || touched != 0 {
		t.Errorf("%d rows of an open lane were written: %v", touched, err)
	}
	if s := p.subjects(); len(s) != 1 || s[0] != "posthouse.event.lane.open.mail._" {
		t.Errorf("published %q", s)
	}
}

// "In half-open state circuit-breaker.half-open-max-attempts probe calls are
// allowed through", over all instances.
func TestProbesOverAllInstances(t *testing.T) {
	t.Parallel()
	for _, probes := range []int{1, 3} {
		p := open(t)
		p.fill(t, "a", 30)
		p.fill(t, "b", 30)
		p.trip(t, probes)
		p.set(t, "shut_until = now() - interval '1 second'")
		var got []ledger.Claimed
		for range 4 {
			got = append(got, p.atOnce(t, 5)...)
		}
		if len(got) != probes || p.view(t).Breaker != lane.HalfOpen {
			t.Fatalf("%d probes of %d, %+v", len(got), probes, p.view(t))
		}
		if got[0].Gate.Breaker != lane.HalfOpen || got[0].Gate.Key != "mail$test" {
			t.Errorf("a probe was claimed as %+v", got[0].Gate)
		}
		// One fails: open again, with one failure more.
		v, changed, err := p.Probed(t.Context(), p.id, got[0].Gate.Version, false, lane.Trip{For: time.Minute, Cause: "still down"})
		if err != nil || !changed || v.Breaker != lane.Open || v.Failures != 6 || v.Cause != "still down" {
			t.Fatal(v, changed, err)
		}
		// The other probes of that period say nothing any more.
		if _, changed, err := p.Probed(t.Context(), p.id, got[0].Gate.Version, true, lane.Trip{}); changed || err != nil {
			t.Error("a probe of a past period has changed the lane", err)
		}
		for _, c := range got {
			p.settle(t, c)
		}
		// The next period: as many probes again, all succeed.
		p.set(t, "shut_until = now() - interval '1 second'")
		for range probes {
			for _, c := range p.atOnce(t, 1) {
				if _, _, err := p.Probed(t.Context(), p.id, c.Gate.Version, true, lane.Trip{}); err != nil {
					t.Fatal(err)
				}
				p.settle(t, c)
			}
		}
		if v := p.view(t); v.Breaker != lane.Closed || v.Cap != probes || v.Failures != 0 {
			t.Errorf("after %d probes that succeeded: %+v", probes, v)
		}
	}
}

// A permit that is never recorded is not lost: it is a lease.
func TestAProbeWhoseWorkerDies(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill(t, "a", 3)
	p.trip(t, 1)
	p.set(t, "shut_until = now() - interval '1 second'")
	got := p.atOnce(t, 1)
	if len(got) != 1 {
		t.Fatal(len(got))
	}
	if again := p.atOnce(t, 1); len(again) != 0 {
		t.Fatal("a second probe beside the first")
	}
	s := ledger.Settlement{Claimed: got[0], Attempt: true, Cause: "lease lapsed", Decision: retry.Decision{State: delivery.Retry, Delay: time.Hour}}
	if res, _, err := p.book.Settle(t.Context(), []ledger.Settlement{s}); err != nil || res[0] != ledger.Moved {
		t.Fatal(res, err)
	}
	if again := p.atOnce(t, 1); len(again) != 1 {
		t.Errorf("%d probes after the sweep", len(again))
	}
}

// After closing, what has piled up is released slowly: each success doubles the cap
// until it is what would be without it.
func TestReleaseIsRamped(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill(t, "a", 200)
	p.trip(t, 1)
	p.set(t, "shut_until = now() - interval '1 second'")
	first := p.atOnce(t, 1)
	if _, _, err := p.Probed(t.Context(), p.id, first[0].Gate.Version, true, lane.Trip{}); err != nil {
		t.Fatal(err)
	}
	p.settle(t, first[0])
	if _, err := p.db.Exec(t.Context(), "DELETE FROM worker"); err != nil { // one living instance for the ceiling
		t.Fatal(err)
	}
	var caps []int
	for v := p.view(t); v.Cap > 0; {
		caps = append(caps, v.Cap)
		got := p.atOnce(t, 50)
		if len(got) != v.Cap {
			t.Fatalf("%d claimed under a cap of %d", len(got), v.Cap)
		}
		for _, c := range got {
			p.settle(t, c)
		}
		if _, err := p.db.Exec(t.Context(), "DELETE FROM worker"); err != nil {
			t.Fatal(err)
		}
		var changed bool
		var err error
		if v, changed, err = p.Relieve(t.Context(), p.id, v.Version, 10); err != nil || !changed {
			t.Fatal(changed, err)
		}
		if _, changed, _ := p.Relieve(t.Context(), p.id, v.Version-1, 10); changed {
			t.Fatal("relieved twice")
		}
	}
	if fmt.Sprint(caps) != "[1 2 4 8]" {
		t.Errorf("caps %v", caps)
	}
	if v := p.view(t); v.Guarded {
		t.Errorf("still guarded: %+v", v)
	}
}

func TestThrottlingHalvesOnceASecond(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill(t, "a", 40)
	if _, err := p.Configure(t.Context(), p.id, lane.Limits{PerMinute: 1200}); err != nil {
		t.Fatal(err)
	}
	taken, _ := p.claim(t, 8)
	if len(taken) != 8 {
		t.Fatal(len(taken))
	}
	v, changed, err := p.Slow(t.Context(), p.id, "421 4.7.0 slow down")
	if err != nil || !changed || v.Cap != 4 || v.RateCap != 600 {
		t.Fatal(v, changed, err)
	}
	if _, changed, err = p.Slow(t.Context(), p.id, "421 4.7.0 slow down"); err != nil || changed {
		t.Error("halved twice within a second", err)
	}
	p.set(t, "capped_at = now() - interval '2 seconds'")
	if v, _, _ = p.Slow(t.Context(), p.id, "again"); v.Cap != 2 || v.RateCap != 300 {
		t.Errorf("%+v", v)
	}
	for range 4 {
		if v, _, err = p.Relieve(t.Context(), p.id, v.Version, 4); err != nil {
			t.Fatal(err)
		}
	}
	if v.Cap != 0 || v.RateCap != 0 {
		t.Errorf("after success: %+v", v)
	}
}

// Limits hold over all instances: never more than the limit in any minute, the
// first tenth of it at once.
func TestRateOverAllInstances(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill(t, "a", 100)
	p.fill(t, "b", 100)
	if _, err := p.Configure(t.Context(), p.id, lane.Limits{PerMinute: 300}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var all []ledger.Claimed
	for time.Since(began) < 3*time.Second {
		all = append(all, p.atOnce(t, 10)...)
	}
	most := 30 + int(time.Since(began).Seconds()*271/60) + 1
	if len(all) > most || len(all) < most-4 {
		t.Errorf("%d claimed in %s, want %d", len(all), time.Since(began), most)
	}
	// A simulated hour under the same rule never exceeds the limit.
	for _, limit := range []int{1, 2, 7, 100, 999} {
		burst := max(1, limit/10)
		interval := 60.0 / float64(limit-burst+1)
		var sent []float64
		tat := 0.0
		for now := 0.0; now < 600; now += 0.05 {
			for max(tat, now)-now <= float64(burst-1)*interval+1e-9 {
				tat = max(tat, now) + interval
				sent = append(sent, now)
			}
		}
		for i, from := range sent {
			n := 0
			for _, s := range sent[i:] {
				if s < from+60-1e-6 {
					n++
				}
			}
			if n > limit {
				t.Fatalf("limit %d: %d within a minute from %v", limit, n, from)
			}
		}
		if len(sent) < limit*8 {
			t.Errorf("limit %d: only %d in ten minutes", limit, len(sent))
		}
	}
}

func TestDailyLimit(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill(t, "a", 20)
	if changed, err := p.Configure(t.Context(), p.id, lane.Limits{Daily: 7}); err != nil || !changed {
		t.Fatal(changed, err)
	}
	if changed, err := p.Configure(t.Context(), p.id, lane.Limits{Daily: 7}); err != nil || changed {
		t.Error("the same limits were written again", err)
	}
	got := p.atOnce(t, 5)
	got = append(got, p.atOnce(t, 5)...)
	if len(got) != 7 {
		t.Fatalf("%d claimed of 7 a day", len(got))
	}
	list, err := p.List(t.Context(), delivery.LaneFilter{Key: "mail$test", Trouble: true}, func(lane.View) string { return "" })
	if err != nil || len(list) != 1 || list[0].DayUsed != 7 || list[0].FullUntil == nil || !list[0].FullUntil.Equal(time.Now().UTC().Truncate(24*time.Hour).Add(24*time.Hour)) {
		t.Errorf("%+v %v", list, err)
	}
	p.set(t, "day = day - 1, full_until = NULL") // the next day
	if got := p.atOnce(t, 5); len(got) != 7 {
		t.Errorf("%d on the next day", len(got))
	}
}

func TestInFlightOverAllInstances(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill(t, "a", 20)
	if _, err := p.Configure(t.Context(), p.id, lane.Limits{MaxInFlight: 3}); err != nil {
		t.Fatal(err)
	}
	got := append(p.atOnce(t, 2), p.atOnce(t, 2)...)
	if len(got) != 3 {
		t.Fatalf("%d in work, at most 3", len(got))
	}
	_, full := p.claim(t, 2)
	if len(full) != 1 || full[0].Lane != p.id || full[0].Wait != 0 {
		t.Errorf("full: %+v", full)
	}
	p.settle(t, got[0])
	if again := p.atOnce(t, 2); len(again) != 1 {
		t.Errorf("%d after one has ended", len(again))
	}
}

func TestPauses(t *testing.T) {
	t.Parallel()
	who := delivery.Warrant{By: "olga", Why: "maintenance"}
	for _, c := range []struct {
		scope, name string
		left        int // of a and b
	}{{"lane", "mail$test", 0}, {"channel", "mail", 0}, {"tenant", "a", 3}, {"tenant", "c", 6}, {"channel", "sms", 6}} {
		p := open(t)
		p.fill(t, "a", 3)
		p.fill(t, "b", 3)
		cmd := delivery.PauseCommand{Warrant: who, Scope: c.scope, Name: c.name}
		if err := p.Pause(t.Context(), cmd); err != nil {
			t.Fatal(err)
		}
		got, _ := p.claim(t, 10)
		if len(got) != c.left {
			t.Errorf("%s %s paused: %d claimed, want %d", c.scope, c.name, len(got), c.left)
		}
		if done, err := p.Resume(t.Context(), cmd); err != nil || !done {
			t.Fatal(done, err)
		}
		if done, err := p.Resume(t.Context(), cmd); err != nil || done {
			t.Error("resumed twice", err)
		}
		more, _ := p.claim(t, 10)
		if len(got)+len(more) != 6 {
			t.Errorf("%s %s resumed: %d and %d claimed", c.scope, c.name, len(got), len(more))
		}
		var audited int
		if err := p.db.QueryRow(t.Context(), "SELECT count(*) FROM audit WHERE who = 'olga' AND why = 'maintenance'").Scan(&audited); err != nil || audited != 3 {
			t.Errorf("%d audit rows: %v", audited, err)
		}
		if s := p.subjects(); len(s) != 2 {
			t.Errorf("published %q", s)
		}
	}
	p := open(t)
	p.fill(t, "a", 1)
	if err := p.Pause(t.Context(), delivery.PauseCommand{Warrant: who, Scope: "lane", Name: "mail$nowhere"}); err == nil {
		t.Error("a lane that is not there was paused")
	}
	if err := p.Pause(t.Context(), delivery.PauseCommand{Warrant: who, Scope: "tenant", Name: "a", For: delivery.Duration(50 * time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	localtest.Eventually(t, 5*time.Second, func() error {
		if got, _ := p.claim(t, 1); len(got) != 1 {
			return errors.New("still paused")
		}
		return nil
	})
}

func TestForceAndReset(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill(t, "a", 3)
	c := delivery.LaneCommand{Warrant: delivery.Warrant{By: "olga", Why: "their maintenance"}, Key: "mail$test", For: delivery.Duration(time.Hour)}
	if v, err := p.Force(t.Context(), c); err != nil || v.Breaker != lane.Open || !v.Forced || v.Cause != "their maintenance" {
		t.Fatal(v, err)
	}
	list, err := p.List(t.Context(), delivery.LaneFilter{Key: c.Key}, func(v lane.View) string { return lane.Message(v, time.Now()) })
	if err != nil || len(list) != 1 || !list[0].Forced || !strings.Contains(list[0].Message, "opened by an operator: their maintenance") || strings.Contains(list[0].Message, "last failure") {
		t.Errorf("%+v %v", list, err)
	}
	if got, _ := p.claim(t, 1); len(got) != 0 {
		t.Error("claimed of a lane that was forced open")
	}
	if v, err := p.Reset(t.Context(), c); err != nil || v.Breaker != lane.Closed || v.Forced {
		t.Fatal(v, err)
	}
	if got, _ := p.claim(t, 1); len(got) != 1 {
		t.Error("nothing claimed after the reset")
	}
	c.Key = "mail$nowhere"
	if _, err := p.Reset(t.Context(), c); err == nil {
		t.Error("a lane that is not there was reset")
	}
}

// When the window of an operator is over and the probe fails, the lane is open since
// it is down, and no longer by hand.
func TestAForcedLaneThatIsDownAfterwards(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill(t, "a", 3)
	c := delivery.LaneCommand{Warrant: delivery.Warrant{By: "olga", Why: "their maintenance"}, Key: "mail$test", For: delivery.Duration(time.Hour)}
	if _, err := p.Force(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	p.set(t, "shut_until = now() - interval '1 second'")
	got := p.atOnce(t, 1)
	if len(got) != 1 || got[0].Gate.Breaker != lane.HalfOpen || !got[0].Gate.Forced {
		t.Fatalf("%+v", got)
	}
	if v, _, err := p.Probed(t.Context(), p.id, got[0].Gate.Version, false, lane.Trip{For: time.Minute, Cause: "still down"}); err != nil || v.Forced || v.Cause != "still down" {
		t.Error(v, err)
	}
}

// Success is for a lane that works: what it may take while it is not closed is the
// probes' business.
func TestOnlyAClosedLaneIsRelieved(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.set(t, "cap = 1, capped_at = now()")
	v := p.trip(t, 1)
	if now, changed, err := p.Relieve(t.Context(), p.id, v.Version, 10); err != nil || changed || now.Cap != 1 {
		t.Errorf("an open lane was relieved: %+v %v", now, err)
	}
	p.set(t, "shut_until = now() - interval '1 second'")
	if v, _, err := p.HalfOpen(t.Context(), p.id); err != nil {
		t.Error(err)
	} else if now, changed, err := p.Relieve(t.Context(), p.id, v.Version, 10); err != nil || changed || now.Cap != 1 {
		t.Errorf("a half open lane was relieved: %+v %v", now, err)
	}
}

// What met the open breaker after it had been claimed waits for the end of the open
// time. A reset makes that due, and nothing else that waits in the lane.
func TestAResetMakesWhatWasGivenBackDue(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill(t, "given", 5)
	taken, _ := p.claim(t, 10)
	var back []ledger.Settlement
	for _, c := range taken[1:] {
		back = append(back, ledger.Settlement{Claimed: c, Cause: "breaker", Decision: retry.Decision{GiveBack: true, Delay: time.Hour}})
	}
	if err := p.book.GiveBack(t.Context(), back); err != nil {
		t.Fatal(err)
	}
	// The first was tried, and waits for its next attempt.
	tried := ledger.Settlement{Claimed: taken[0], Attempt: true, Verdict: delivery.Refused, Cause: "attempt", Decision: retry.Decision{State: delivery.Retry, Delay: time.Hour}}
	if res, _, err := p.book.Settle(t.Context(), []ledger.Settlement{tried}); err != nil || res[0] != ledger.Moved {
		t.Fatal(res, err)
	}
	later := time.Now().Add(time.Hour)
	if _, _, err := p.book.Accept(t.Context(), []ledger.Acceptance{{ID: delivery.NewID(), Tenant: "later", Channel: delivery.Mail, RequestID: "l", Class: delivery.Transactional,
		Lane: p.id, Recipients: []string{"a@example.test"}, Prepared: []byte("x"), SendAt: &later}}); err != nil {
		t.Fatal(err)
	}
	if got, _ := p.claim(t, 10); len(taken) != 5 || len(got) != 0 {
		t.Fatalf("%d were claimed, %d while all wait", len(taken), len(got))
	}
	who := delivery.Warrant{By: "olga", Why: "it is back"}
	due := func() (n int) {
		t.Helper()
		if err := p.db.QueryRow(t.Context(), "SELECT count(*) FROM queue WHERE due_at <= clock_timestamp()").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, err := p.Force(t.Context(), delivery.LaneCommand{Warrant: who, Key: "mail$test", For: delivery.Duration(time.Minute)}); err != nil || due() != 4 {
		t.Fatalf("%d of 4 are due after a shorter opening: %v", due(), err)
	}
	if got, _ := p.claim(t, 10); len(got) != 0 {
		t.Fatalf("%d claimed of an open lane", len(got))
	}
	if _, err := p.Reset(t.Context(), delivery.LaneCommand{Warrant: who, Key: "mail$test"}); err != nil {
		t.Fatal(err)
	}
	got, _ := p.claim(t, 10)
	if len(got) != 4 {
		t.Errorf("%d claimed after the reset, want the 4 that were given back", len(got))
	}
	var attempts, marked int
	if err := p.db.QueryRow(t.Context(), "SELECT sum(attempts), (SELECT count(*) FROM queue WHERE claimed_at IS NOT NULL AND state <> 'leased') FROM delivery").Scan(&attempts, &marked); err != nil || attempts != 1 || marked != 0 {
		t.Errorf("%d attempts, want 1; %d rows still look given back: %v", attempts, marked, err)
	}
}

// A pause that has run out by itself was not ended by who resumes it.
func TestResumingWhatHasRunOut(t *testing.T) {
	t.Parallel()
	p := open(t)
	who := delivery.Warrant{By: "olga", Why: "their audit"}
	for scope, name := range map[string]string{"lane": "mail$test", "tenant": "a", "channel": "mail"} {
		c := delivery.PauseCommand{Warrant: who, Scope: scope, Name: name, For: delivery.Duration(time.Hour)}
		if err := p.Pause(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		p.set(t, "paused_until = now() - interval '1 second'")
		if _, err := p.db.Exec(t.Context(), "UPDATE pause SET until = now() - interval '1 second'"); err != nil {
			t.Fatal(err)
		}
		told := len(p.subjects())
		if done, err := p.Resume(t.Context(), c); done || err != nil {
			t.Errorf("%s: %t %v", scope, done, err)
		}
		if n := len(p.subjects()); n != told {
			t.Errorf("%s: an event tells of a resumption that was none", scope)
		}
	}
}

// The names that commands take are those that subjects can hold.
func TestNamesOfCommandsAreTokens(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.StringMatching(`[A-Za-z0-9_-]{1,66}`), rapid.SampledFrom([]string{"_", "_platform", "a.b", ">", "*", ""})).Draw(t, "name")
		want := streams.Token(name) && name != streams.None
		who := delivery.Warrant{By: "olga", Why: "x"}
		if err := (delivery.PauseCommand{Warrant: who, Scope: "tenant", Name: name}).Check(); (err == nil) != want {
			t.Fatalf("pause of %q: %v", name, err)
		}
		if err := (delivery.QuotaCommand{Warrant: who, Bucket: name, Channel: "mail"}).Check(); (err == nil) != want {
			t.Fatalf("quota of %q: %v", name, err)
		}
	})
}

// Hastening reads the rows that were given back, and no other that waits.
func TestGivenBackRowsAreFoundByTheirLane(t *testing.T) {
	t.Parallel()
	p := open(t)
	if _, err := p.db.Exec(t.Context(), `INSERT INTO queue (kind, id, lane, tenant, class, state, due_at, version, claimed_at)
		SELECT 'delivery', gen_random_uuid(), $1, 'a', 1, 'waiting', now() + interval '1 hour', 1, CASE WHEN n % 500 = 0 THEN now() END FROM generate_series(1, 20000) n`, p.id); err != nil {
		t.Fatal(err)
	}
	if _, err := p.db.Exec(t.Context(), "ANALYZE queue"); err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("sql.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(source), "const hasten = `")
	text, _, _ = strings.Cut(text, "`")
	rows, err := p.db.Query(t.Context(), "EXPLAIN "+strings.ReplaceAll(text, "$1", fmt.Sprint(p.id)))
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	plan := strings.Join(lines, "\n")
	if err != nil || !strings.Contains(plan, "queue_given_back") || !strings.Contains(plan, "queue_pkey") || strings.Contains(plan, "Seq Scan") {
		t.Errorf("%v\n%s", err, plan)
	}
}

// "A row deferred 10,000 times still has its attempts": giving back counts nothing,
// writes no version and no event.
func TestARowThatIsGivenBackTenThousandTimes(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.fill(t, "a", 1)
	w, err := p.book.Join(t.Context(), "test", 10*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	turn := []claim.Turn{{Group: claim.Group{Lane: p.id, Tenant: "a", Class: int16(delivery.Transactional)}, N: 1}}
	var id delivery.ID
	for n := 1; n <= 10_000; n++ {
		got, _, err := p.work.Claim(t.Context(), w, turn)
		if err != nil || len(got) != 1 || int(got[0].Fence) != n || got[0].Version != 1 {
			t.Fatalf("claim %d: %+v %v", n, got, err)
		}
		id = got[0].ID
		if err := p.book.GiveBack(t.Context(), []ledger.Settlement{{Claimed: got[0], Decision: retry.Decision{GiveBack: true}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.db.Exec(t.Context(), `UPDATE queue SET state = 'ready', due_at = now(), claimed_at = NULL WHERE state = 'waiting'`); err != nil {
			t.Fatal(err)
		}
	}
	s, err := p.book.Status(t.Context(), id)
	if err != nil || s.Attempts != 0 || s.Retries != 0 || s.Version != 1 || len(s.Tried) != 0 || len(s.Journey) != 1 {
		t.Errorf("%+v %v", s, err)
	}
}
