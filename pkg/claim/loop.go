package claim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Config says how much a loop takes and how often it looks.
type Config struct {
	Instance  string        // shown in the worker row
	Slots     int           // most items in work at once
	LaneSlots int           // most of one lane
	Term      time.Duration // of the lease; renewed each third
	Poll      time.Duration // while there is work; backs off to IdlePoll
	IdlePoll  time.Duration
	MaxClaim  int // most rows of one claim
	Log       zerolog.Logger
}

const (
	scanPage = 1000 // groups that one look lists
	maxTurns = 64   // groups that one claim names
)

// Work does one item. It must return; ctx ends when the lease has lapsed or the
// time to stop working has come.
type Work[T Item] func(ctx context.Context, item T, lease *Lease)

// Loop claims and works until told to stop.
type Loop[T Item] struct {
	cfg    Config
	source Source[T]
	work   Work[T]

	cursor Group // where the next look goes on

	mu       sync.Mutex
	turns    *Turns
	inFlight map[Known]struct{} // an item given back may be claimed again before its first slot is free
	lanes    map[int32]int      // in work and reserved, by lane
	full     map[int32]full
	reserved int
	newest   time.Time // claim known of this worker, by the database's clock
	doubt    doubt
	term     *term         // nil while nothing may be started
	signal   chan struct{} // something above has changed
	gaze     chan struct{} // the queue is to be looked at now
}

// full is until when nothing more is claimed in a lane.
type full struct {
	until     time.Time
	byRelease bool // something of it that ends makes room too
}

// term is the life of one lease: what is started under it, and who waits for it.
type term struct {
	lease *Lease
	held  context.Context // what work runs under
	work  sync.WaitGroup  // items in work, and reservations
}

// NewLoop makes a loop; Run starts it.
func NewLoop[T Item](cfg Config, source Source[T], work Work[T]) *Loop[T] {
	return &Loop[T]{cfg: cfg, source: source, work: work, turns: NewTurns(maxTurns),
		inFlight: make(map[Known]struct{}), lanes: make(map[int32]int), full: make(map[int32]full), signal: make(chan struct{}, 1), gaze: make(chan struct{}, 1)}
}

// Announce tells that groups have new ready work. It does not wait for it.
func (l *Loop[T]) Announce(groups ...Group) {
	l.mu.Lock()
	for _, g := range groups {
		l.turns.Announce(g)
	}
	l.mu.Unlock()
	l.poke()
}

// Wake has the queue looked at now: a lane may have opened.
func (l *Loop[T]) Wake() {
	l.mu.Lock()
	clear(l.full)
	l.mu.Unlock()
	select {
	case l.gaze <- struct{}{}:
	default:
	}
}

func (l *Loop[T]) poke() {
	select {
	case l.signal <- struct{}{}:
	default:
	}
}

// Run takes work until taking ends and works until all is done or working ends.
// It returns an error only when it could not leave in order.
func (l *Loop[T]) Run(taking, working context.Context) error {
	for taking.Err() == nil {
		lease, err := l.join(taking)
		if err != nil {
			return nil // only when told to stop
		}
		if err := l.live(taking, working, lease); err != nil {
			return err
		}
	}
	return nil
}

// join registers a worker, trying until it succeeds or taking ends.
func (l *Loop[T]) join(taking context.Context) (*Lease, error) {
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
		asked := time.Now()
		worker, err := l.source.Join(taking, l.cfg.Instance, l.cfg.Term)
		if err == nil {
			return newLease(worker, asked, l.cfg.Term), nil
		}
		if taking.Err() != nil {
			return nil, taking.Err()
		}
		l.cfg.Log.Warn().Err(err).Msg("cannot join; trying again")
		sleep(taking, jitter(wait))
	}
}

// live is the life of one lease: it ends in order when taking ends, or when the
// lease lapses.
func (l *Loop[T]) live(taking, working context.Context, lease *Lease) error {
	held, lapse := context.WithCancelCause(working)
	defer lapse(nil)
	claiming, stopClaiming := context.WithCancel(taking)
	defer stopClaiming()
	beating, stopBeating := context.WithCancel(context.WithoutCancel(working))
	defer stopBeating()

	var beat sync.WaitGroup
	beat.Go(func() {
		if err := l.beat(beating, lease); err != nil {
			l.cfg.Log.Error().Err(err).Stringer("worker", lease.Worker).Msg("lease lost; coming back under a new one")
			lapse(err)
			stopClaiming()
		}
	})
	t := &term{lease: lease, held: held}
	l.begin(t)
	l.claim(claiming, working, t)
	l.begin(nil)
	t.work.Wait()
	stopBeating()
	beat.Wait()
	leaving, cancel := context.WithTimeout(context.WithoutCancel(working), 2*time.Second)
	defer cancel()
	if err := l.reconcile(leaving, lease); err != nil {
		l.cfg.Log.Warn().Err(err).Stringer("worker", lease.Worker).Msg("what a lost claim may have leased is left to the sweep")
	}
	if err := l.source.Leave(leaving, lease.Worker); err != nil && taking.Err() != nil {
		return fmt.Errorf("the lease of worker %s is left to run out: %w", lease.Worker, err)
	}
	return nil
}

// begin makes t the term that work is started under; nil: there is none.
func (l *Loop[T]) begin(t *term) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.term = t
	if t != nil {
		l.turns, l.cursor = NewTurns(maxTurns), Group{}
		l.newest, l.doubt = time.Time{}, doubt{}
		clear(l.full)
	}
}

// start works on an item; call it under mu, with a place in t.work taken.
func (l *Loop[T]) start(t *term, item T) {
	if item.Since().After(l.newest) {
		l.newest = item.Since()
	}
	l.inFlight[Known{item.Key(), item.Since()}] = struct{}{}
	l.lanes[item.Group().Lane]++
	go func() {
		defer t.work.Done()
		defer l.release(item)
		l.work(t.held, item, t.lease)
	}()
}

// beat renews the lease each third of its term until it ends or lapses.
func (l *Loop[T]) beat(ctx context.Context, lease *Lease) error {
	wait := l.cfg.Term / 3
	for sleep(ctx, wait) {
		asked := time.Now()
		trying, cancel := context.WithTimeout(ctx, max(lease.Left(), time.Millisecond))
		err := l.source.Renew(trying, lease.Worker, l.cfg.Term)
		cancel()
		switch {
		case err == nil:
			lease.extend(asked, l.cfg.Term)
			wait = l.cfg.Term / 3
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrLapsed), lease.Left() <= 0:
			return ErrLapsed
		default:
			l.cfg.Log.Warn().Err(err).Dur("left", lease.Left()).Msg("lease not renewed; trying again")
			wait = min(l.cfg.Term/30, max(lease.Left(), time.Millisecond))
		}
	}
	return nil
}

// claim looks and takes until ctx ends.
func (l *Loop[T]) claim(ctx, working context.Context, t *term) {
	poll := l.cfg.Poll
	look := time.NewTimer(0)
	defer look.Stop()
	reopen := time.NewTimer(time.Hour)
	defer reopen.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.signal:
		case <-reopen.C:
		case <-l.gaze:
			look.Reset(0)
		case <-look.C:
			next, err := l.look(ctx, t.lease)
			if err != nil && ctx.Err() == nil {
				l.cfg.Log.Warn().Err(err).Msg("cannot look for work; trying again")
			}
			if poll = min(2*poll, l.cfg.IdlePoll); l.busy() {
				poll = l.cfg.Poll
			}
			wait := jitter(poll)
			if next >= 0 {
				wait = min(wait, next+time.Millisecond)
			}
			look.Reset(wait)
		}
		for ctx.Err() == nil {
			more, err := l.take(working, t)
			if err != nil && ctx.Err() == nil {
				l.cfg.Log.Warn().Err(err).Msg("cannot claim; trying again")
				poll = l.cfg.Poll
				look.Reset(jitter(poll))
			}
			if err != nil || !more {
				if wait := l.untilRoom(); wait > 0 {
					reopen.Reset(wait)
				}
				break
			}
			if poll != l.cfg.Poll {
				poll = l.cfg.Poll
				look.Reset(jitter(poll))
			}
		}
	}
}

// busy tells whether there is reason to look again soon.
func (l *Loop[T]) busy() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.turns.Empty() || !l.doubt.until.IsZero()
}

// look reads one page of groups and goes round when the last page is short.
func (l *Loop[T]) look(ctx context.Context, lease *Lease) (time.Duration, error) {
	if err := l.reconcile(ctx, lease); err != nil {
		return -1, err
	}
	glance, err := l.source.Look(ctx, l.cursor, scanPage)
	if err != nil {
		return -1, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range glance.Found {
		l.cursor = f.Group
		if !f.Shut {
			l.turns.Announce(f.Group)
		}
	}
	if len(glance.Found) < scanPage {
		l.cursor = Group{}
	}
	for _, g := range glance.Promoted {
		l.turns.Announce(g)
	}
	return glance.NextDue, nil
}

// take claims for the free slots and starts what it got; more tells that another
// claim may bring something at once. A claim that has been sent is not cut off
// when taking ends (its answer would be lost), only when working does.
func (l *Loop[T]) take(working context.Context, t *term) (more bool, err error) {
	if t.lease.Left() < l.cfg.Term/3 {
		return false, nil
	}
	if err := l.reconcile(working, t.lease); err != nil {
		return false, err
	}
	l.mu.Lock()
	before := l.newest
	free := min(l.cfg.Slots-len(l.inFlight)-l.reserved, l.cfg.MaxClaim)
	turns := l.turns.Next(free, l.room, time.Now())
	l.mu.Unlock()
	if len(turns) == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(working, t.lease.Left())
	defer cancel()
	items, full, err := l.source.Claim(ctx, t.lease.Worker, turns)
	if err != nil {
		l.suspect(before)
		return false, err
	}
	l.serve(t, turns, items, full)
	return true, nil
}

// room is how many more items of a lane may be in work; call it under mu.
func (l *Loop[T]) room(lane int32) int {
	if f, ok := l.full[lane]; ok {
		if time.Now().Before(f.until) {
			return 0
		}
		delete(l.full, lane)
	}
	return l.cfg.LaneSlots - l.lanes[lane]
}

// untilRoom is how long until the first full lane has room again; 0: none is full.
func (l *Loop[T]) untilRoom() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first time.Time
	for _, f := range l.full {
		if first.IsZero() || f.until.Before(first) {
			first = f.until
		}
	}
	if first.IsZero() {
		return 0
	}
	return max(time.Until(first), time.Millisecond)
}

// serve starts what the turns brought and books it. A lane that is full keeps its
// groups: that a turn brought less says nothing of them.
func (l *Loop[T]) serve(t *term, turns []Turn, items []T, filled []Full) {
	got := make(map[Group]int, len(turns))
	newest := make(map[Group]time.Time, len(turns))
	l.mu.Lock()
	defer l.mu.Unlock()
	t.work.Add(len(items))
	for _, item := range items {
		g := item.Group()
		got[g]++
		if item.Due().After(newest[g]) {
			newest[g] = item.Due()
		}
		l.start(t, item)
	}
	for _, f := range filled {
		if f.Wait > 0 {
			l.full[f.Lane] = full{until: time.Now().Add(f.Wait)}
		} else { // what ends elsewhere is not heard of: the poll is the truth
			l.full[f.Lane] = full{until: time.Now().Add(jitter(l.cfg.Poll)), byRelease: true}
		}
	}
	for _, turn := range turns {
		brought := got[turn.Group]
		if _, isFull := l.full[turn.Lane]; isFull {
			brought = turn.N
		}
		l.turns.Served(turn, brought, newest[turn.Group])
	}
}

// release frees the slot of an item.
func (l *Loop[T]) release(item T) {
	l.mu.Lock()
	delete(l.inFlight, Known{item.Key(), item.Since()})
	l.doubt.note(Known{item.Key(), item.Since()}, l.reserved > 0)
	l.leave(item.Group().Lane, 1)
	if l.full[item.Group().Lane].byRelease {
		delete(l.full, item.Group().Lane)
	}
	l.mu.Unlock()
	l.poke()
}

// leave frees n places of a lane; call it under mu.
func (l *Loop[T]) leave(lane int32, n int) {
	if l.lanes[lane] -= n; l.lanes[lane] == 0 {
		delete(l.lanes, lane)
	}
}

// InFlight is how many items are in work.
func (l *Loop[T]) InFlight() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.inFlight)
}

func jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

// sleep waits and tells whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
