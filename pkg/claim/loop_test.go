package claim

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
)

// Time is that of synctest here: it stands still while anything can go on.

func settings() Config {
	return Config{Instance: "test", Slots: 10, LaneSlots: 6, Term: 15 * time.Second, Poll: 500 * time.Millisecond, IdlePoll: 5 * time.Second, MaxClaim: 500, Log: zerolog.Nop()}
}

// running is a loop under test.
type running struct {
	*Loop[thing]
	endTaking, endWorking context.CancelFunc
	ended                 chan error
}

func run(cfg Config, f *fakeQueue, work Work[thing]) *running {
	taking, endTaking := context.WithCancel(context.Background())
	working, endWorking := context.WithCancel(context.Background())
	r := &running{Loop: NewLoop(cfg, f, work), endTaking: endTaking, endWorking: endWorking, ended: make(chan error, 1)}
	go func() { r.ended <- r.Run(taking, working) }()
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	r.endTaking()
	synctest.Wait()
	select {
	case err := <-r.ended:
		if err != nil {
			t.Error(err)
		}
	default:
		t.Error("the loop has not ended")
		r.endWorking()
		<-r.ended
	}
	r.endWorking()
}

func TestWhatWakesALoop(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		wake        func(*fakeQueue, *running)
		least, most time.Duration
	}{
		{"an announcement", func(f *fakeQueue, r *running) { f.add(grp(1, "a", 1), 1); r.Announce(grp(1, "a", 1)) }, 0, 0},
		{"the poll", func(f *fakeQueue, _ *running) { f.add(grp(1, "a", 1), 1) }, time.Millisecond, 6 * time.Second},
		{"the next that falls due", func(f *fakeQueue, _ *running) {
			f.mu.Lock()
			f.nextDue = 2 * time.Second // seen by the next look
			f.mu.Unlock()
			for range 3 { // until that look, and until it is due
				time.Sleep(1900 * time.Millisecond)
				synctest.Wait()
			}
			f.add(grp(1, "a", 1), 1)
		}, 0, 2100 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				var at atomic.Pointer[time.Time]
				r := run(settings(), f, func(_ context.Context, x thing, _ *Lease) { now := time.Now(); at.Store(&now); f.done(x) })
				time.Sleep(time.Minute) // idle by then
				synctest.Wait()
				c.wake(f, r)
				from := time.Now()
				for at.Load() == nil && time.Since(from) < time.Minute {
					synctest.Wait()
					if at.Load() == nil {
						time.Sleep(time.Millisecond)
					}
				}
				if took := at.Load(); took == nil || took.Sub(from) < c.least || took.Sub(from) > c.most {
					t.Errorf("begun at %v, asked at %s", took, from)
				}
				r.stop(t)
			})
		})
	}
}

func TestSlotsAreRespected(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		for lane := range int32(3) {
			f.add(grp(lane+1, "a", 1), 40)
			f.add(grp(lane+1, "b", 2), 40)
		}
		var mu sync.Mutex
		var most, now, total int
		lanes, mostOfLane := map[int32]int{}, 0
		r := run(settings(), f, func(_ context.Context, x thing, _ *Lease) {
			mu.Lock()
			now++
			total++
			lanes[x.group.Lane]++
			most, mostOfLane = max(most, now), max(mostOfLane, lanes[x.group.Lane])
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			now--
			lanes[x.group.Lane]--
			mu.Unlock()
			f.done(x)
		})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if most != 10 || mostOfLane > 6 || total != 240 {
			t.Errorf("%d at once (want 10), %d of a lane (at most 6), %d in all", most, mostOfLane, total)
		}
		r.stop(t)
		if len(f.leased) != 0 || len(f.left) != 1 || r.InFlight() != 0 {
			t.Errorf("%d leased, %d left", len(f.leased), len(f.left))
		}
	})
}

// A lease that cannot be renewed ends the work that goes on under it, with a
// cause, no later than the database's; the loop comes back under a new worker.
func TestALapsedLease(t *testing.T) {
	t.Parallel()
	for name, renew := range map[string]func(context.Context) error{
		"told":              func(context.Context) error { return ErrLapsed },
		"the database errs": func(context.Context) error { return errors.New("away") },
		"it says nothing":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				f.onRenew = renew
				f.add(grp(1, "a", 1), 2)
				begun := time.Now()
				causes := make(chan error, 10)
				r := run(settings(), f, func(ctx context.Context, x thing, lease *Lease) {
					if err := lease.Proceed(); err != nil {
						t.Error(err)
					}
					<-ctx.Done()
					if err := lease.Proceed(); name != "told" && !errors.Is(err, ErrLeaseShort) {
						t.Errorf("may go on under a lapsed lease: %v", err)
					}
					causes <- context.Cause(ctx)
				})
				for range 2 {
					if cause := <-causes; !errors.Is(cause, ErrLapsed) {
						t.Errorf("cause %v", cause)
					}
				}
				if took := time.Since(begun); took > 15*time.Second {
					t.Errorf("ended %s after the lease began", took)
				}
				f.mu.Lock()
				f.onRenew = nil
				f.mu.Unlock()
				time.Sleep(time.Minute)
				synctest.Wait()
				f.mu.Lock()
				if len(f.workers) != 2 || f.workers[0] == f.workers[1] {
					t.Errorf("workers %v", f.workers)
				}
				f.mu.Unlock()
				r.stop(t)
			})
		})
	}
}

// A renewal that fails for a while and then succeeds ends nothing.
func TestARenewalThatIsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		begun := time.Now()
		f.onRenew = func(context.Context) error {
			if time.Since(begun) < 12*time.Second {
				return errors.New("away")
			}
			return nil
		}
		f.add(grp(1, "a", 1), 1)
		var ended atomic.Bool
		r := run(settings(), f, func(ctx context.Context, x thing, _ *Lease) {
			select {
			case <-ctx.Done():
				ended.Store(true)
			case <-time.After(time.Minute):
			}
			f.done(x)
		})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if ended.Load() || len(f.workers) != 1 {
			t.Errorf("work was cut off: %v, %d workers", ended.Load(), len(f.workers))
		}
		r.stop(t)
	})
}

// The answer of a claim is lost: what the database leased comes back unused and is
// done once. What this worker had worked on is never given back, even if its result
// was not stored: that is for the sweep.
func TestALostClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.add(grp(1, "a", 1), 3)
		var mu sync.Mutex
		begun := map[[16]byte]int{}
		r := run(settings(), f, func(_ context.Context, x thing, _ *Lease) {
			mu.Lock()
			defer mu.Unlock()
			begun[x.key]++
			if len(begun) != 2 { // the result of the second is not stored
				f.done(x)
			}
		})
		time.Sleep(time.Second)
		synctest.Wait()
		f.mu.Lock()
		failures := 2
		f.onClaim = func() error {
			if failures--; failures >= 0 {
				return errors.New("the connection broke")
			}
			return nil
		}
		f.mu.Unlock()
		f.add(grp(1, "a", 1), 5)
		time.Sleep(time.Minute)
		synctest.Wait()
		for key, n := range begun {
			if n != 1 {
				t.Errorf("%s was begun %d times", key, n)
			}
		}
		f.mu.Lock()
		if len(begun) != 8 || len(f.leased) != 1 || f.returns < 2 || len(f.workers) != 1 {
			t.Errorf("%d begun, %d still leased, %d returns, %d workers", len(begun), len(f.leased), f.returns, len(f.workers))
		}
		returns := f.returns
		f.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		if f.returns != returns {
			t.Error("the doubt never ends")
		}
		r.stop(t)
	})
}

// An item that was finished and given back during a doubt, and is claimed once more
// by a transaction whose answer is lost too, is another claim: it is returned as well.
func TestALostClaimOfWhatWasFinishedBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.add(grp(1, "a", 1), 1)
		var tries atomic.Int32
		lose := func() error { return errors.New("the connection broke") }
		r := run(settings(), f, func(_ context.Context, x thing, _ *Lease) {
			if tries.Add(1) > 1 {
				f.done(x)
				return
			}
			// The first attempt is given back, and while the doubt lasts the next claim is lost.
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.leased, x.key)
			f.ready = append(f.ready, x)
			lost := 1
			f.onClaim = func() error {
				if lost--; lost >= 0 {
					return lose()
				}
				return nil
			}
		})
		r.suspect(time.Time{}) // something was lost before
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if tries.Load() < 2 || len(f.leased) != 0 {
			t.Errorf("%d tries, %d still leased to a worker that does not know", tries.Load(), len(f.leased))
		}
		f.mu.Unlock()
		r.stop(t)
		f.mu.Lock()
	})
}

// A claim whose commit comes after the first return is caught by a later one.
func TestALostClaimThatCommitsLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.add(grp(1, "a", 1), 1)
		var once sync.Once
		var done atomic.Int32
		f.onClaim = func() (err error) {
			once.Do(func() {
				err = errors.New("the connection broke")
				late := f.leased // the database has not committed yet
				f.leased = map[[16]byte]leasedThing{}
				time.AfterFunc(2*time.Second, func() {
					f.mu.Lock()
					defer f.mu.Unlock()
					for k, v := range late {
						f.leased[k] = v
					}
				})
			})
			return err
		}
		r := run(settings(), f, func(_ context.Context, x thing, _ *Lease) { done.Add(1); f.done(x) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if done.Load() != 1 || len(f.leased) != 0 {
			t.Errorf("%d done, %d leased to a worker that does not know", done.Load(), len(f.leased))
		}
		r.stop(t)
	})
}

// Taking ends: what is in work goes on; working ends: it is told to stop.
func TestShutdownInTwoSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.add(grp(1, "a", 1), 20)
		var begun, cut atomic.Int32
		r := run(settings(), f, func(ctx context.Context, x thing, _ *Lease) {
			begun.Add(1)
			<-ctx.Done()
			cut.Add(1)
		})
		time.Sleep(time.Second)
		synctest.Wait()
		r.endTaking()
		time.Sleep(time.Hour) // the lease is kept as long as the work goes on
		synctest.Wait()
		if begun.Load() != 6 || cut.Load() != 0 || len(f.workers) != 1 || f.renews < 600 {
			t.Errorf("%d begun, %d cut off, %d renewals", begun.Load(), cut.Load(), f.renews)
		}
		from := time.Now()
		r.endWorking()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		if cut.Load() != 6 || len(f.left) != 1 || time.Since(from) > time.Second {
			t.Errorf("%d cut off, %d left, after %s", cut.Load(), len(f.left), time.Since(from))
		}
	})
}

// A claim that is on its way when taking ends is heard out: what it took is done,
// not left to a lease.
func TestShutdownDuringAClaim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.hold = make(chan struct{})
		f.add(grp(1, "a", 1), 1)
		var done atomic.Int32
		r := run(settings(), f, func(_ context.Context, x thing, _ *Lease) { done.Add(1); f.done(x) })
		time.Sleep(time.Second)
		synctest.Wait()
		r.endTaking()
		synctest.Wait()
		close(f.hold)
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		if done.Load() != 1 || len(f.leased) != 0 {
			t.Errorf("%d done, %d leased", done.Load(), len(f.leased))
		}
		r.endWorking()
	})
}

// And when working ends, it is cut off, and given back.
func TestShutdownDuringAClaimThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		f.hold = make(chan struct{})
		f.add(grp(1, "a", 1), 1)
		r := run(settings(), f, func(context.Context, thing, *Lease) { t.Error("begun") })
		time.Sleep(time.Second)
		synctest.Wait()
		r.endTaking()
		synctest.Wait()
		r.endWorking()
		if err := <-r.ended; err != nil {
			t.Error(err)
		}
		if f.returns == 0 {
			t.Error("what the claim may have leased was not given back")
		}
	})
}

// An idle loop asks for little: looks and renewals of an hour.
func TestIdleLoopIsQuiet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		r := run(settings(), f, func(context.Context, thing, *Lease) {})
		time.Sleep(time.Hour)
		synctest.Wait()
		const statementsOfALook = 4
		perSecond := float64(f.looks*statementsOfALook+f.renews) / 3600
		t.Logf("%d looks and %d renewals an hour: %.2f statements a second", f.looks, f.renews, perSecond)
		if perSecond > 2 || f.looks < 600 {
			t.Errorf("%.2f statements a second, %d looks", perSecond, f.looks)
		}
		r.stop(t)
	})
}
