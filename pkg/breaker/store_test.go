package breaker

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// slow is a store that answers when it is let.
type slow struct {
	Store
	calls atomic.Int32
	gate  chan struct{}
}

func (s *slow) Open(ctx context.Context, t Trip) (Gate, bool, error) {
	s.calls.Add(1)
	<-s.gate
	return s.Store.Open(ctx, t)
}

// permits takes n while the lane is closed.
func (b *bench) permits(t *testing.T, n int) []*Permit {
	t.Helper()
	list := make([]*Permit, n)
	for i := range list {
		var no *Rejection
		if list[i], no = b.Acquire(b.row.look()); no != nil {
			t.Fatal(no)
		}
	}
	return list
}

// trip opens it here, with the database away.
func (b *bench) trip(t *testing.T) {
	t.Helper()
	b.row.away = true
	for i, p := range b.permits(t, 5) {
		if err := p.Done(t.Context(), Failure, "connection refused"); (err != nil) != (i == 4) {
			t.Fatal(i, err)
		}
	}
}

// A hundred calls that fail together are one message to the database.
func TestOneTellsTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(defaults())
		s := &slow{Store: b.row, gate: make(chan struct{})}
		b.store = s
		var wg sync.WaitGroup
		for _, p := range b.permits(t, 100) {
			wg.Go(func() {
				if err := p.Done(t.Context(), Failure, "x"); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if n := s.calls.Load(); n != 1 {
			t.Errorf("%d calls", n)
		}
		if _, no := b.Acquire(Gate{ID: 1, Key: b.row.gate.Key, State: Closed}); no == nil {
			t.Error("not rejected while the store is being told")
		}
		close(s.gate)
		wg.Wait()
		b.state(t, Open)
		if len(b.changes) != 1 || b.List()[0].Unsaved {
			t.Errorf("%+v %+v", b.changes, b.List())
		}
	})
}

// What the store answers may be older than what was heard meanwhile.
func TestTheStoreAnswersLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer, news Gate
		open         bool
	}{
		"opened, and closed meanwhile":        {Gate{State: Open, Version: 1}, Gate{State: Closed, Version: 3}, false},
		"closed, and opened again meanwhile":  {Gate{State: Closed, Version: 3}, Gate{State: Open, Version: 4}, true},
		"open already, and nothing since":     {Gate{State: Open, Version: 4}, Gate{State: Open, Version: 4}, true},
		"half open already, and failed since": {Gate{State: HalfOpen, Version: 2}, Gate{State: Open, Version: 3}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(defaults())
			b.trip(t)
			until := time.Now().Add(time.Hour)
			for _, g := range []*Gate{&c.answer, &c.news} {
				if g.Key, g.ID = b.row.gate.Key, 1; g.State == Open {
					g.Until = until
				}
			}
			b.Told(c.news)
			b.settle(c.answer)
			if got := b.List()[0]; got.Gate.State != c.news.State || got.Gate.Version != c.news.Version || got.Unsaved {
				t.Errorf("%+v", got)
			}
			if _, no := b.Acquire(b.row.gate); (no != nil) != c.open {
				t.Errorf("rejected: %v", no)
			}
		})
	}
}

// A destination that recovers before the store heard of its trip is not opened for
// everybody afterwards.
func TestARecoveryBeforeTheStoreHeard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(defaults())
		late := b.permits(t, 2)
		b.trip(t)
		_ = late[0].Done(t.Context(), Success, "") // was on its way before: no recovery
		if k := b.List()[0]; !k.Unsaved || k.Gate.State != Open || k.Gate.Failures != 5 || k.Gate.Cause != "connection refused" {
			t.Errorf("%+v", k)
		}
		time.Sleep(time.Minute)
		b.row.away = false
		if err := b.Flush(t.Context()); err != nil { // its time is over
			t.Fatal(err)
		}
		b.state(t, Closed)
		b.call(t, Success)
		if k := b.List()[0]; k.Unsaved {
			t.Errorf("%+v", k)
		}
		b.calls(t, 4, Failure)
		b.state(t, Closed)
		b.call(t, Failure)
		b.state(t, Open)
	})
}

// The first failure after a trip that could not be stored stores it, with all of its
// failures.
func TestTheNextFailureStoresTheTrip(t *testing.T) {
	t.Parallel()
	b := newBench(defaults())
	late := b.permits(t, 2)
	b.trip(t)
	if err := late[0].Done(t.Context(), Failure, "x"); err == nil || !strings.Contains(err.Error(), "mail$mx.example") {
		t.Error("the error names no lane: ", err)
	}
	b.row.away = false
	if err := late[1].Done(t.Context(), Failure, "the last"); err != nil {
		t.Fatal(err)
	}
	b.state(t, Open)
	if len(b.changes) != 1 || b.changes[0].To.Failures != 7 || b.changes[0].To.Cause != "the last" {
		t.Errorf("%+v", b.changes)
	}
}

func TestFlushOpensForTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(defaults())
		b.trip(t)
		if err := b.Flush(t.Context()); err == nil {
			t.Error("flushed into nothing")
		}
		b.row.away = false
		time.Sleep(45 * time.Second)
		for range 2 {
			if err := b.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if left := time.Until(b.row.gate.Until); b.row.opens != 1 || left != 15*time.Second {
			t.Errorf("opened %d times, for %s", b.row.opens, left)
		}
	})
}

// A cap that changes gives the row a version, and is no answer to a trip.
func TestANewVersionIsNoAnswerToATrip(t *testing.T) {
	t.Parallel()
	b := newBench(defaults())
	b.trip(t)
	b.row.gate.Version++
	if _, no := b.Acquire(b.row.look()); no == nil {
		t.Error("a new version has let it through")
	}
	opened := b.row.gate
	opened.State, opened.Version = HalfOpen, opened.Version+2
	if _, no := b.Acquire(opened); no != nil {
		t.Error("a probe is rejected: ", no)
	}
	if b.List()[0].Unsaved {
		t.Error("others have opened it, and it is still to be told")
	}
}

// What was claimed before an outage and ends in it, or was counted before it, says
// nothing of what comes after.
func TestWhatWasBeforeTheOutage(t *testing.T) {
	t.Parallel()
	b := newBench(defaults())
	b.calls(t, 4, Failure)
	late := b.permits(t, 20)
	news := b.row.gate
	for _, state := range []State{Open, HalfOpen} {
		news.State, news.Version, news.Until = state, news.Version+1, time.Now().Add(time.Hour)
		b.Told(news)
		for range 10 {
			_ = late[0].Done(t.Context(), Failure, "x")
			late = late[1:]
		}
	}
	if _, no := b.Acquire(news); no != nil || b.row.asked != 0 {
		t.Errorf("a probe is rejected: %v; the store was asked %d times", no, b.row.asked)
	}
	news.State, news.Version, news.Until = Closed, news.Version+1, time.Time{}
	b.row.gate = news
	b.calls(t, 4, Failure)
	b.state(t, Closed)
	b.call(t, Failure)
	b.state(t, Open)
}

// A trip that is still to be told keeps its place, though its time is over.
func TestAnUnsavedTripIsNotEvicted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(defaults())
		b.most = 2
		b.trip(t)
		time.Sleep(time.Hour)
		for _, key := range []string{"a", "b", "c", "d"} {
			b.Acquire(Gate{Key: key, State: Closed})
		}
		list := b.List()
		if k := list[len(list)-1]; len(list) > 2 || !k.Unsaved {
			t.Errorf("%+v", list)
		}
	})
}

// A probe whose result can not be stored leaves the row as it is.
func TestAProbeThatCanNotBeStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(defaults())
		b.calls(t, 5, Failure)
		time.Sleep(time.Minute)
		p, no := b.Acquire(b.row.look())
		if no != nil {
			t.Fatal(no)
		}
		b.row.away = true
		if err := p.Done(t.Context(), Success, ""); err == nil || !strings.Contains(err.Error(), "probe of mail$mx.example") {
			t.Error(err)
		}
		b.row.away = false
		b.state(t, HalfOpen)
		b.call(t, Success)
		b.state(t, Closed)
	})
}

// A probe of an earlier period neither opens nor closes the one of today.
func TestAProbeOfAnEarlierPeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := defaults()
		s.Probes = 2
		b := newBench(s)
		b.calls(t, 5, Failure)
		time.Sleep(time.Minute)
		early := []*Permit{}
		for range 2 {
			p, _ := b.Acquire(b.row.look())
			early = append(early, p)
		}
		b.call(t, Failure)
		time.Sleep(time.Minute)
		b.call(t, Success)
		_ = early[0].Done(t.Context(), Success, "")
		b.state(t, HalfOpen)
		_ = early[1].Done(t.Context(), Failure, "x")
		b.state(t, HalfOpen)
		b.call(t, Success)
		b.state(t, Closed)
	})
}

// Everything at once, with a database that comes and goes: nothing races, and the
// registry ends in agreement with the row.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	s := defaults()
	s.Threshold, s.OpenFor, s.Probes = 2, time.Millisecond, 2
	r := &row{gate: Gate{ID: 1, Key: "k", State: Closed}}
	var set *Set
	set = New(s, r, func(context.Context, Change) { set.List() })
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for range 500 {
				switch n := rnd.IntN(20); n {
				case 0:
					r.mu.Lock()
					r.away = !r.away
					r.mu.Unlock()
				case 1:
					_ = set.Flush(t.Context())
				case 2:
					set.Told(r.look())
				case 3:
					set.Reset("k")
				default:
					if p, _ := set.Acquire(r.look()); p != nil {
						_ = p.Done(t.Context(), []Result{Success, Failure, Excluded, Throttle, Refusal}[n%5], "x")
						_ = p.Close(t.Context())
					}
				}
			}
		})
	}
	wg.Wait()
	r.away = false
	if err := set.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := r.look()
	set.Told(g)
	set.mu.Lock()
	defer set.mu.Unlock()
	if e := set.entries["k"]; e != nil && (e.saving || e.known.Version > g.Version || e.known.Version == g.Version && e.known.State != g.State) {
		t.Errorf("%+v, the row is %+v", e.known, g)
	}
}
