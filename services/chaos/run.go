package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
)

// Scenario is one fault: what runs, what is done to it, what must hold beyond the
// invariants.
type Scenario struct {
	Name    string // "F3"; a part of one is "F3.terminate"
	Fault   string // in words
	Missing string // why it is not run; empty: it is
	Note    string // what is left out of it, or compressed
	Config  Config
	Load    Load
	Rules   Rules
	Settle  time.Duration // how long it may take to come to rest after the last fault; 0: 60 s
	Bound   time.Duration // how long the faults may take; 0: 6 minutes
	Do      func(context.Context, *Run) error
	Check   func(context.Context, *Run, *History) []Violation // more than the invariants; nil: nothing
	Ground  func(context.Context, *Config, Options) (undo func() error, err error)
}

// Run is a scenario at work.
type Run struct {
	*Site
	Seed     uint64
	Rand     *rand.Rand
	producer *producer
}

// Options of Execute.
type Options struct {
	Bin    string // folder of built programs
	Old    string // commit whose programs F19 begins with; empty: HEAD~1
	Self   []string
	Parent string
	Keep   bool // the folder of a run that broke nothing, too
	Drop   bool // the folder of a run that broke something, too
	Seed   uint64
	Scale  float64 // of the load; 0: 1
	Say    func(format string, args ...any)
}

// Acknowledged waits until n more requests are.
func (r *Run) Acknowledged(ctx context.Context, n int) error {
	want := r.producer.acknowledged() + n
	return until(ctx, fmt.Sprintf("wait for %d requests to be acknowledged", n), func(context.Context) (bool, error) { return r.producer.acknowledged() >= want, nil })
}

// Delivered waits until so many deliveries are final.
func (r *Run) Delivered(ctx context.Context, n int) error {
	return until(ctx, fmt.Sprintf("wait for %d deliveries", n), func(ctx context.Context) (bool, error) {
		var have int
		err := r.DB.QueryRow(ctx, `SELECT count(*) FROM delivery WHERE state IN ('sent', 'failed', 'dead')`).Scan(&have)
		return have >= n, err
	})
}

// Execute runs a scenario and judges it. The error is for what could not be run or
// asked; a broken invariant is in the result.
func Execute(ctx context.Context, sc Scenario, o Options) (res *Result, h *History, err error) {
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	res = &Result{Scenario: sc.Name, Fault: sc.Fault, Note: sc.Note, Seed: o.Seed, Missing: sc.Missing}
	if sc.Missing != "" {
		return res, nil, nil
	}
	cfg := sc.Config
	cfg.Parent, cfg.Bin, cfg.Self, cfg.Keep, cfg.Say = o.Parent, o.Bin, o.Self, true, o.Say
	if sc.Ground != nil {
		undo, e := sc.Ground(ctx, &cfg, o)
		if e != nil {
			return res, nil, fmt.Errorf("%s: %w", sc.Name, e)
		}
		defer func() { err = errors.Join(err, undo()) }()
	}
	began := time.Now()
	site, err := Open(ctx, cfg)
	if err != nil {
		return res, nil, fmt.Errorf("%s: %w", sc.Name, err)
	}
	defer func() {
		site.cfg.Keep = o.Keep || !o.Drop && (err != nil || len(res.Violations) > 0)
		if site.cfg.Keep {
			res.Dir = site.Dir
		}
		err = errors.Join(err, site.Close(ctx))
	}()
	producer, err := site.newProducer()
	if err != nil {
		return res, nil, fmt.Errorf("%s: %w", sc.Name, err)
	}
	defer producer.close()
	run := &Run{Site: site, Seed: o.Seed, Rand: rand.New(rand.NewPCG(o.Seed, 1)), producer: producer}
	rules := sc.Rules
	rules.Marker = Marker
	if rules.OnUnknown == "" {
		rules.OnUnknown = "retry"
	}
	if rules.Grace == 0 {
		rules.Grace = 10 * time.Second
	}
	recovery, unrest, err := run.play(ctx, sc, o)
	if err != nil {
		return res, nil, fmt.Errorf("%s: %w", sc.Name, err)
	}
	if rules.Quiet = unrest == nil; unrest != nil {
		rules.Unrest = unrest.Error()
	}
	asking, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if h, err = site.Witness(asking, rules, producer.publications()); err != nil {
		return res, h, fmt.Errorf("%s: %w", sc.Name, err)
	}
	res.figures(h, site, recovery, time.Since(began))
	res.Violations = Judge(h)
	if sc.Check != nil {
		res.Violations = append(res.Violations, sc.Check(asking, run, h)...)
	}
	if len(res.Violations) > 0 {
		res.Tale = Tale(h, res.Violations[0])
		err = h.Save(filepath.Join(site.Dir, "history.json"))
	}
	return res, h, err
}

func (sc Scenario) bound() time.Duration { return cmp.Or(sc.Bound, 6*time.Minute) }

// doing bounds Do: a scenario that waits for what never comes is told as such.
func doing(ctx context.Context, sc Scenario, r *Run) error {
	ctx, cancel := context.WithTimeoutCause(ctx, sc.bound(), fmt.Errorf("the faults took longer than %s", sc.bound()))
	defer cancel()
	return sc.Do(ctx, r)
}

// play publishes while the faults happen, mends all, and waits for quiet: how long
// that took, and what was left when the time was over.
func (r *Run) play(ctx context.Context, sc Scenario, o Options) (recovery time.Duration, unrest, err error) {
	load := sc.Load
	if o.Scale > 0 && load.Total > 0 {
		load.Total = max(1, int(float64(load.Total)*o.Scale))
	}
	publishing, endLoad := context.WithTimeout(ctx, sc.bound()+time.Hour)
	defer endLoad()
	enough := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error { return r.producer.run(publishing, enough, load, rand.New(rand.NewPCG(o.Seed, 2))) })
	if sc.Do != nil {
		err = doing(ctx, sc, r)
	}
	close(enough)
	mended := time.Now()
	mending, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err = errors.Join(err, r.Mend(mending))
	if err != nil {
		endLoad()
		return 0, nil, errors.Join(err, group.Wait())
	}
	// What is published while nothing is broken counts as load, not as recovery.
	if err = group.Wait(); err != nil {
		return 0, nil, err
	}
	if sc.Do == nil {
		mended = time.Now()
	}
	r.cfg.Say("mended; waiting for quiet")
	unrest = r.quiet(ctx, cmp.Or(sc.Settle, time.Minute))
	return time.Since(mended), unrest, ctx.Err()
}
