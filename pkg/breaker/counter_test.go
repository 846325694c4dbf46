package breaker

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// Trap: with one bucket the library's window is fixed and jumps; ours rolls.
func TestTheWindowRolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := defaults()
		s.Threshold, s.Period = 3, 10*time.Second
		b := newBench(s)
		b.call(t, Success)
		time.Sleep(9 * time.Second)
		b.calls(t, 2, Failure)
		time.Sleep(2 * time.Second) // a fixed window would have turned
		b.call(t, Failure)
		b.state(t, Open)
	})
}

// Trap: the library asks only after a failure. A share that a success has carried
// over the least number of sends opens with the next failure.
func TestARateThatASuccessCompletes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := defaults()
		s.Rate, s.Executions, s.Period = 50, 4, time.Minute
		b := newBench(s)
		b.calls(t, 3, Failure)
		b.call(t, Success)
		b.state(t, Closed)
		b.call(t, Failure)
		b.state(t, Open)
		if n := b.changes[0].To.Failures; n != 4 { // those of the window, not those in a row
			t.Errorf("after %d failures", n)
		}
	})
}

// Trap: a goroutine that ends within its call leaks the library's permit.
func TestAPermitOfAGoroutineThatEnds(t *testing.T) {
	t.Parallel()
	b := newBench(defaults())
	var wg sync.WaitGroup
	for _, p := range b.permits(t, 5) {
		wg.Go(func() {
			defer p.Close(t.Context())
			runtime.Goexit()
		})
	}
	wg.Wait()
	b.state(t, Open)
	if c := b.changes[0].To.Cause; c != "nobody said how it ended" {
		t.Error(c)
	}
}

// Against a plain list of results, for every kind of window.
func TestWindowsAgainstAReference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s := defaults()
		s.Threshold = rapid.IntRange(1, 4).Draw(rt, "threshold")
		switch rapid.SampledFrom([]string{"sends", "time", "both", "rate"}).Draw(rt, "window") {
		case "sends":
			s.Executions = s.Threshold + rapid.IntRange(0, 5).Draw(rt, "more")
		case "time":
			s.Period = 10 * time.Second
		case "both":
			s.Period, s.Executions = 10*time.Second, s.Threshold+rapid.IntRange(0, 5).Draw(rt, "more")
		case "rate":
			s.Period, s.Executions, s.Rate = 10*time.Second, rapid.IntRange(1, 8).Draw(rt, "least"), rapid.IntRange(1, 100).Draw(rt, "rate")
		}
		if faults := s.Check(""); len(faults) > 0 {
			rt.Fatal(faults)
		}
		steps := rapid.SliceOfN(rapid.SampledFrom([]string{"f", "f", "s", "s", "1s", "3s", "15s"}), 1, 80).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) {
			type result struct {
				at     time.Time
				failed bool
			}
			var all []result
			c := newCounter(s)
			for i, step := range steps {
				switch step {
				case "1s":
					time.Sleep(time.Second)
					continue
				case "3s":
					time.Sleep(3 * time.Second)
					continue
				case "15s":
					time.Sleep(15 * time.Second)
					continue
				}
				all = append(all, result{time.Now(), step == "f"})
				sends, failed := 0, 0
				for n, r := range all {
					if s.Period > 0 && time.Since(r.at) >= s.Period || s.Period == 0 && n < len(all)-s.Executions {
						continue
					}
					if sends++; r.failed {
						failed++
					}
				}
				want := step == "f" && failed >= s.Threshold
				if s.Period > 0 {
					want = want && sends >= s.Executions
				}
				if s.Rate > 0 {
					want = step == "f" && sends >= s.Executions && failed*100 >= s.Rate*sends
				}
				if got := c.add(step == "s"); got != want || c.failed != failed {
					t.Fatalf("%+v after %v: tripped %v with %d, want %v with %d", s, steps[:i+1], got, c.failed, want, failed)
				}
				if want {
					c.forget()
					all = nil
				}
			}
		})
	})
}
