package claim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"
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

// scanPage is how many groups one look lists.
const scanPage = 1000

// Work does one item. It must return; ctx ends when the lease has lapsed or the
// time to stop working has come.
type Work[T Item] func(ctx context.Context, item T, lease *Lease)

// Loop claims and works until told to stop.
type Loop[T Item] struct {
	cfg    Config
	source Source[T]
	work   Work[T]

	turns  *Turns
	cursor Group // where the next look goes on

	mu       sync.Mutex
	news     []Group // announced since the claimer last looked
	inFlight map[[16]byte]struct{}
	lanes    map[int32]int
	newest   time.Time // claim known of this worker, by the database's clock
	doubt    doubt
	signal   chan struct{} // something above has changed
}

// NewLoop makes a loop; Run starts it.
func NewLoop[T Item](cfg Config, source Source[T], work Work[T]) *Loop[T] {
	return &Loop[T]{cfg: cfg, source: source, work: work, turns: NewTurns(64),
		inFlight: make(map[[16]byte]struct{}), lanes: make(map[int32]int), signal: make(chan struct{}, 1)}
}

// Announce tells that groups have new ready work. It never blocks.
func (l *Loop[T]) Announce(groups ...Group) {
	l.mu.Lock()
	l.news = append(l.news, groups...)
	if len(l.news) > 10*scanPage { // nobody is looking: the next look finds them anyway
		l.news = l.news[:0]
	}
	l.mu.Unlock()
	l.poke()
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
		if err := l.term(taking, working, lease); err != nil {
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

// term is the life of one lease: it ends in order when taking ends, or when the
// lease lapses.
func (l *Loop[T]) term(taking, working context.Context, lease *Lease) error {
	held, lapse := context.WithCancelCause(working) // what work runs under
	defer lapse(nil)
	claiming, stopClaiming := context.WithCancel(taking)
	defer stopClaiming()
	beating, stopBeating := context.WithCancel(context.WithoutCancel(working))
	defer stopBeating()

	var beat, work errgroup.Group
	beat.Go(func() error {
		if err := l.beat(beating, lease); err != nil {
			l.cfg.Log.Error().Err(err).Stringer("worker", lease.Worker).Msg("lease lost; coming back under a new one")
			lapse(err)
			stopClaiming()
		}
		return nil
	})
	l.claim(claiming, working, lease, func(item T) {
		work.Go(func() error {
			defer l.release(item)
			l.work(held, item, lease)
			return nil
		})
	})
	_ = work.Wait()
	stopBeating()
	_ = beat.Wait()
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

// claim looks and takes until ctx ends; start must not block.
func (l *Loop[T]) claim(ctx, working context.Context, lease *Lease, start func(T)) {
	poll := l.cfg.Poll
	look := time.NewTimer(0)
	defer look.Stop()
	l.turns, l.cursor = NewTurns(l.turns.maxTurns), Group{}
	l.mu.Lock()
	l.newest, l.doubt = time.Time{}, doubt{}
	l.mu.Unlock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.signal:
			l.hear()
		case <-look.C:
			next, err := l.look(ctx, lease)
			if err != nil && ctx.Err() == nil {
				l.cfg.Log.Warn().Err(err).Msg("cannot look for work; trying again")
			}
			if poll = min(2*poll, l.cfg.IdlePoll); !l.turns.Empty() {
				poll = l.cfg.Poll
			}
			wait := jitter(poll)
			if next >= 0 {
				wait = min(wait, next+time.Millisecond)
			}
			look.Reset(wait)
		}
		for ctx.Err() == nil {
			more, err := l.take(working, lease, start)
			if err != nil && ctx.Err() == nil {
				l.cfg.Log.Warn().Err(err).Msg("cannot claim; trying again")
				poll = l.cfg.Poll
				look.Reset(jitter(poll))
			}
			if err != nil || !more {
				break
			}
			if poll != l.cfg.Poll {
				poll = l.cfg.Poll
				look.Reset(jitter(poll))
			}
		}
	}
}

// hear takes over what was announced.
func (l *Loop[T]) hear() {
	l.mu.Lock()
	news := l.news
	l.news = nil
	l.mu.Unlock()
	for _, g := range news {
		l.turns.Announce(g)
	}
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
func (l *Loop[T]) take(working context.Context, lease *Lease, start func(T)) (more bool, err error) {
	l.hear()
	if l.turns.Empty() || lease.Left() < l.cfg.Term/3 {
		return false, nil
	}
	if err := l.reconcile(working, lease); err != nil {
		return false, err
	}
	l.mu.Lock()
	free := min(l.cfg.Slots-len(l.inFlight), l.cfg.MaxClaim)
	turns := l.turns.Next(free, func(lane int32) int { return l.cfg.LaneSlots - l.lanes[lane] }, time.Now())
	l.mu.Unlock()
	if len(turns) == 0 {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(working, lease.Left())
	defer cancel()
	items, err := l.source.Claim(ctx, lease.Worker, turns)
	if err != nil {
		l.suspect()
		return false, err
	}
	l.serve(turns, items)
	for _, item := range items {
		start(item)
	}
	return true, nil
}

// serve books what the turns brought.
func (l *Loop[T]) serve(turns []Turn, items []T) {
	got := make(map[Group]int, len(turns))
	newest := make(map[Group]time.Time, len(turns))
	l.mu.Lock()
	for _, item := range items {
		g := item.Group()
		got[g]++
		if item.Due().After(newest[g]) {
			newest[g] = item.Due()
		}
		if item.Since().After(l.newest) {
			l.newest = item.Since()
		}
		l.inFlight[item.Key()] = struct{}{}
		l.lanes[g.Lane]++
	}
	l.mu.Unlock()
	for _, t := range turns {
		l.turns.Served(t, got[t.Group], newest[t.Group])
	}
}

// release frees the slot of an item.
func (l *Loop[T]) release(item T) {
	lane := item.Group().Lane
	l.mu.Lock()
	delete(l.inFlight, item.Key())
	if l.doubt.finished != nil {
		l.doubt.finished[item.Key()] = struct{}{}
	}
	if l.lanes[lane]--; l.lanes[lane] == 0 {
		delete(l.lanes, lane)
	}
	l.mu.Unlock()
	l.poke()
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
