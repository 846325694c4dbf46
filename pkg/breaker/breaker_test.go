package breaker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// row is a lane's row in memory, for any number of instances.
type row struct {
	mu     sync.Mutex
	gate   Gate
	probes int
	done   int
	away   bool
	opens  int
	asked  int // to open
}

var errAway = errors.New("the database is away")

func (r *row) Open(_ context.Context, t Trip) (Gate, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.away {
		return Gate{}, false, errAway
	}
	if r.gate.State != Closed {
		return r.gate, false, nil
	}
	r.opens++
	r.gate.State, r.gate.Until, r.gate.OpenedAt, r.gate.Failures, r.gate.Cause = Open, time.Now().Add(t.For), time.Now(), t.Failures, t.Cause
	r.gate.Version++
	r.probes = t.Probes
	return r.gate, true, nil
}

func (r *row) Probed(_ context.Context, probe Gate, success bool, t Trip) (Gate, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.away:
		return Gate{}, false, errAway
	case r.gate.State != HalfOpen || probe.Version != r.gate.Version:
		return r.gate, false, nil
	case !success:
		r.gate.State, r.gate.Until, r.done = Open, time.Now().Add(t.For), 0
		r.gate.Failures++
		r.gate.Version++
	default:
		if r.done++; r.done >= r.probes {
			r.gate.State, r.done = Closed, 0
			r.gate.Version++
		}
	}
	return r.gate, true, nil
}

// look is what a claim would say: an open lane whose time is over is half open.
func (r *row) look() Gate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gate.State == Open && !time.Now().Before(r.gate.Until) {
		r.gate.State, r.done = HalfOpen, 0
		r.gate.Version++
	}
	return r.gate
}

type bench struct {
	*Set
	row     *row
	changes []Change
}

func defaults() Settings {
	return Settings{Threshold: 5, OpenFor: time.Minute, Probes: 1, DeferMax: 12 * time.Hour, OnAuth: "fail", MinRejected: time.Minute}
}

func newBench(s Settings) *bench {
	b := &bench{row: &row{gate: Gate{ID: 1, Key: "mail$mx.example", State: Closed}}}
	b.Set = New(s, b.row, func(_ context.Context, c Change) { b.changes = append(b.changes, c); b.List() })
	return b
}

// call makes one, with its result; false: it was rejected.
func (b *bench) call(t *testing.T, r Result) bool {
	t.Helper()
	gate := b.row.look()
	if gate.State == Open {
		return false // a claim would not have brought it
	}
	p, no := b.Acquire(gate)
	if no != nil {
		return false
	}
	if err := p.Done(t.Context(), r, "connection refused"); err != nil {
		t.Fatal(err)
	}
	return true
}

func (b *bench) calls(t *testing.T, n int, r Result) {
	t.Helper()
	for range n {
		b.call(t, r)
	}
}

func (b *bench) state(t *testing.T, want State) {
	t.Helper()
	if got := b.row.gate.State; got != want {
		t.Errorf("the lane is %s, want %s", got, want)
	}
}

// Seed: "Number of consecutive failures before opening: 5".
func TestOpensAfterFiveFailuresInARow(t *testing.T) {
	t.Parallel()
	b := newBench(defaults())
	for range 3 {
		b.calls(t, 4, Failure)
		b.call(t, Success)
	}
	b.state(t, Closed)
	b.calls(t, 5, Failure)
	b.state(t, Open)
	if len(b.changes) != 1 || b.changes[0].To.Failures != 5 || b.changes[0].To.Cause != "connection refused" {
		t.Errorf("%+v", b.changes)
	}
}

// Seed: "Open: every call is rejected immediately", "half-open: probe calls are
// allowed through. If they succeed, it closes. If they fail, it reopens".
func TestTheLifeOfABreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := defaults()
		s.Probes = 2
		b := newBench(s)
		early := b.row.look()
		b.calls(t, 5, Failure)
		if p, no := b.Acquire(early); p != nil || !strings.Contains(no.Message, "OPEN") || no.Delay < time.Minute || no.Delay > 70*time.Second {
			t.Errorf("what was claimed before: %+v %+v", p, no)
		}
		time.Sleep(time.Minute)
		if !b.call(t, Failure) {
			t.Error("a probe was rejected")
		}
		b.state(t, Open)
		time.Sleep(time.Minute)
		b.call(t, Success)
		b.state(t, HalfOpen)
		if n := len(b.changes); n != 2 { // the first of two probes changes nothing yet
			t.Errorf("%+v", b.changes)
		}
		b.call(t, Success)
		b.state(t, Closed)
		b.calls(t, 4, Failure) // it counts from nothing again
		b.state(t, Closed)
		b.call(t, Failure)
		b.state(t, Open)
	})
}

// Trap: done of the library has no guard: one permit that is told six times trips it.
func TestAPermitCountsOnce(t *testing.T) {
	t.Parallel()
	b := newBench(defaults())
	p, _ := b.Acquire(b.row.look())
	for range 10 {
		_ = p.Done(t.Context(), Failure, "x")
	}
	if k := b.List(); k[0].Failures != 1 {
		t.Errorf("one permit counted %d times", k[0].Failures)
	}
}

// Seed: "Every acquired permit must be recorded"; trap: a permit in half open that
// is never told blocks the library for ever.
func TestAForgottenPermitIsAFailure(t *testing.T) {
	t.Parallel()
	b := newBench(defaults())
	for range 5 {
		p, _ := b.Acquire(b.row.look())
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	b.state(t, Open)
	p := &Permit{set: b.Set, gate: b.row.look()}
	_ = p.Done(t.Context(), Success, "")
	if err := p.Close(t.Context()); err != nil { // after a Done it says nothing
		t.Fatal(err)
	}
}

// Trap: the library drops results that come after their window has turned.
func TestSlowResultsCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := defaults()
		s.Period = 10 * time.Second
		b := newBench(s)
		var permits []*Permit
		for range 5 {
			p, _ := b.Acquire(b.row.look())
			permits = append(permits, p)
		}
		time.Sleep(5 * time.Minute)
		for _, p := range permits {
			_ = p.Done(t.Context(), Failure, "timed out")
		}
		b.state(t, Open)
	})
}

// Trap: excluded results are an unlimited door in half open.
func TestExcludedResultsCloseNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(defaults())
		b.calls(t, 100, Excluded)
		b.calls(t, 5, Failure)
		time.Sleep(time.Minute)
		b.calls(t, 100, Excluded)
		b.state(t, HalfOpen)
	})
}

// Traps: callbacks run under the library's mutex (newBench calls List in one), and
// open becomes half open only when somebody asks.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	r := &row{gate: Gate{ID: 1, Key: "k", State: Closed}}
	var mu sync.Mutex
	changes := 0
	var sets []*Set
	for range 4 {
		var s *Set
		s = New(defaults(), r, func(context.Context, Change) { mu.Lock(); changes++; mu.Unlock(); s.List() })
		sets = append(sets, s)
	}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for range 200 {
				g := r.look()
				if g.State == Open {
					continue
				}
				if p, _ := sets[i%4].Acquire(g); p != nil {
					_ = p.Done(t.Context(), Failure, "x")
				}
			}
		})
	}
	wg.Wait()
	if r.opens != 1 || changes != 1 {
		t.Errorf("four instances opened it %d times, told %d", r.opens, changes)
	}
}

// Seed: "An existing circuit breaker keeps its settings until the key is reset".
// With the database away this instance still leaves the destination alone, and
// says so when it can.
func TestATripThatCanNotBeStored(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(defaults())
		b.row.away = true
		for i := range 5 {
			p, no := b.Acquire(b.row.look())
			if no != nil {
				t.Fatal(no)
			}
			if err := p.Done(t.Context(), Failure, "x"); (err != nil) != (i == 4) {
				t.Fatal(i, err)
			}
		}
		if _, no := b.Acquire(b.row.look()); no == nil {
			t.Error("not rejected while it can not be stored")
		}
		if k := b.List(); !k[0].Unsaved || k[0].Gate.State != Open {
			t.Errorf("%+v", k)
		}
		time.Sleep(time.Minute + time.Second)
		p, no := b.Acquire(b.row.look())
		if no != nil {
			t.Fatal("still rejected after the open time")
		}
		b.row.away = false
		if err := p.Done(t.Context(), Failure, "x"); err != nil { // one more failure, and it is told
			t.Fatal(err)
		}
		b.state(t, Open)
	})
	b := newBench(defaults())
	b.row.away = true
	for range 5 {
		p, _ := b.Acquire(b.row.look())
		_ = p.Done(t.Context(), Failure, "x")
	}
	b.row.away = false
	if err := b.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.state(t, Open)
}

func TestNewsOfAnotherInstance(t *testing.T) {
	t.Parallel()
	b := newBench(defaults())
	b.call(t, Success)
	g := b.row.look()
	news := g
	news.State, news.Version, news.Until = Open, g.Version+1, time.Now().Add(time.Hour)
	b.Told(news)
	if _, no := b.Acquire(g); no == nil {
		t.Error("an older claim passes a lane that another instance has opened")
	}
	stale := g
	b.Told(stale)
	if _, no := b.Acquire(g); no == nil {
		t.Error("old news have closed it")
	}
	news.State, news.Version = Closed, news.Version+1
	b.Told(news)
	if _, no := b.Acquire(news); no != nil {
		t.Error("closed elsewhere, still rejected here")
	}
}

func TestRefusedCredentials(t *testing.T) {
	t.Parallel()
	s := defaults()
	b := newBench(s)
	b.call(t, Refusal)
	b.state(t, Closed) // fail: as any failure
	s.OnAuth = "park"
	b = newBench(s)
	b.call(t, Refusal)
	b.state(t, Open)
}

func TestTheRegistryIsBounded(t *testing.T) {
	t.Parallel()
	b := newBench(defaults())
	b.most = 100
	b.calls(t, 5, Failure)
	for i := range 5000 {
		p, no := b.Acquire(Gate{Key: fmt.Sprint("k", i), State: Closed})
		if no != nil {
			t.Fatal(no)
		}
		_ = p.Done(t.Context(), Success, "")
	}
	open := false
	for _, k := range b.List() {
		open = open || k.Gate.Key == "mail$mx.example"
	}
	if n := len(b.List()); n > 100 || !open {
		t.Errorf("%d entries, the open one is there: %v", n, open)
	}
}

// Seed, "Rejection messages".
func TestMessage(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 9, 14, 10, 12, 3, 0, time.UTC)
	g := Gate{Key: "smp$https://smp.example.org", State: Open, OpenedAt: at, Until: at.Add(time.Minute), Failures: 5, Cause: "SocketTimeoutException: Read timed out\r\nafter 10000 ms"}
	want := "SMP access to 'https://smp.example.org' suspended by circuit breaker (state OPEN since 2026-09-14T10:12:03Z, 42s remaining) after 5 failures; last failure: SocketTimeoutException: Read timed out after 10000 ms"
	if got := Message(g, at.Add(18*time.Second)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	g.Cause = strings.Repeat("ä", 5000)
	if got := Message(g, at); len([]rune(got)) > 600 {
		t.Errorf("%d runes", len([]rune(got)))
	}
}

// Against a plain reference: consecutive failures, one instance, any order of calls
// and waits.
func TestAgainstAReference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		threshold, probes := rapid.IntRange(1, 4).Draw(rt, "threshold"), rapid.IntRange(1, 3).Draw(rt, "probes")
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"f", "s", "x", "wait"}), 1, 60).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			s := defaults()
			s.Threshold, s.Probes = threshold, probes
			b := newBench(s)
			state, failures, good := Closed, 0, 0
			for i, step := range steps {
				switch step {
				case "wait":
					time.Sleep(time.Minute)
					continue
				case "f":
					b.call(t, Failure)
				case "s":
					b.call(t, Success)
				case "x":
					b.call(t, Excluded)
				}
				if state == Open && b.row.gate.State != Open {
					state, good = HalfOpen, 0
				}
				switch {
				case state == Open || step == "x":
				case state == HalfOpen && step == "f":
					state = Open
				case state == HalfOpen:
					if good++; good == probes {
						state, failures = Closed, 0
					}
				case step == "s":
					failures = 0
				default:
					if failures++; failures == threshold {
						state = Open
					}
				}
				if b.row.gate.State != state {
					t.Fatalf("after %v: %s, want %s", steps[:i+1], b.row.gate.State, state)
				}
			}
		})
	})
}
