package claim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// thing is a piece of work of the fake queue.
type thing struct {
	key   [16]byte
	group Group
	due   time.Time
	since time.Time
}

func (t thing) Key() [16]byte    { return t.key }
func (t thing) Group() Group     { return t.group }
func (t thing) Due() time.Time   { return t.due }
func (t thing) Since() time.Time { return t.since }

// fakeQueue is a Source in memory that can be made to fail.
type fakeQueue struct {
	mu      sync.Mutex
	ready   []thing
	leased  map[[16]byte]leasedThing
	workers []uuid.UUID
	left    []uuid.UUID
	looks   int
	filled  []Full // told by each claim
	renews  int
	returns int
	nextDue time.Duration
	serial  uint64

	onClaim func() error // after the rows are leased: the answer is lost
	onRenew func(context.Context) error
	hold    chan struct{} // a claim waits for it
}

type leasedThing struct {
	thing
	owner uuid.UUID
}

func newFake() *fakeQueue {
	return &fakeQueue{leased: map[[16]byte]leasedThing{}, nextDue: -1}
}

func (f *fakeQueue) add(g Group, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for range n {
		f.serial++
		t := thing{group: g, due: time.Now()}
		copy(t.key[:], fmt.Sprintf("%016d", f.serial))
		f.ready = append(f.ready, t)
	}
}

// done removes finished work, as a settle does.
func (f *fakeQueue) done(t thing) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.leased, t.key)
}

func (f *fakeQueue) Look(ctx context.Context, after Group, limit int) (Glance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	g := Glance{NextDue: f.nextDue}
	for _, t := range f.ready {
		if found := (Found{Group: t.group}); !slices.Contains(g.Found, found) && len(g.Found) < limit {
			g.Found = append(g.Found, found)
		}
	}
	return g, ctx.Err()
}

func (f *fakeQueue) Claim(ctx context.Context, worker uuid.UUID, turns []Turn) ([]thing, []Full, error) {
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var taken []thing
	for _, turn := range turns {
		n := turn.N
		f.ready = slices.DeleteFunc(f.ready, func(t thing) bool {
			if n == 0 || t.group != turn.Group {
				return false
			}
			n--
			f.serial++
			t.since = time.Unix(int64(f.serial), 0)
			f.leased[t.key] = leasedThing{t, worker}
			taken = append(taken, t)
			return true
		})
	}
	if f.onClaim != nil {
		if err := f.onClaim(); err != nil {
			return nil, nil, err
		}
	}
	return taken, f.filled, nil
}

func (f *fakeQueue) Return(_ context.Context, worker uuid.UUID, after time.Time, except []Known) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.returns++
	for key, l := range f.leased {
		if l.owner == worker && l.since.After(after) && !slices.Contains(except, Known{key, l.since}) {
			delete(f.leased, key)
			f.ready = append(f.ready, l.thing)
		}
	}
	return nil
}

func (f *fakeQueue) Join(ctx context.Context, _ string, _ time.Duration) (uuid.UUID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := uuid.New()
	f.workers = append(f.workers, id)
	return id, ctx.Err()
}

func (f *fakeQueue) Renew(ctx context.Context, _ uuid.UUID, _ time.Duration) error {
	f.mu.Lock()
	f.renews++
	hook := f.onRenew
	f.mu.Unlock()
	if hook != nil {
		return hook(ctx)
	}
	return nil
}

func (f *fakeQueue) Leave(_ context.Context, worker uuid.UUID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = append(f.left, worker)
	return nil
}
