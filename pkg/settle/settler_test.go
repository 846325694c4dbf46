package settle_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/retry"
	"github.com/posthouse-io/posthouse/pkg/settle"
)

// book is a ledger that fails as told.
type book struct {
	mu       sync.Mutex
	batches  [][]ledger.Settlement
	back     []ledger.Settlement
	late     []ledger.Settlement
	away     int                  // calls that find no database
	bad      map[delivery.ID]bool // content that the database refuses
	answers  map[delivery.ID]ledger.Settled
	blocking chan struct{} // not nil: the first write waits for it
}

var errAway = errors.New("the database is away")

func (b *book) Settle(_ context.Context, s []ledger.Settlement) ([]ledger.Settled, outbox.Batch, error) {
	if b.blocking != nil {
		<-b.blocking
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away > 0 {
		b.away--
		return nil, outbox.Batch{}, errAway
	}
	results := make([]ledger.Settled, len(s))
	for i := range s {
		if b.bad[s[i].Claimed.ID] {
			return nil, outbox.Batch{}, &pgconn.PgError{Code: "22021"}
		}
		if results[i] = b.answers[s[i].Claimed.ID]; results[i] == "" {
			results[i] = ledger.Moved
		}
	}
	b.batches = append(b.batches, s)
	return results, outbox.Batch{Messages: make([]outbox.Message, len(s))}, nil
}

func (b *book) GiveBack(_ context.Context, s []ledger.Settlement) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.back = append(b.back, s...)
	return nil
}

func (b *book) Late(_ context.Context, s ledger.Settlement) (bool, outbox.Batch, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.late = append(b.late, s)
	return true, outbox.Batch{}, nil
}

// run settles n results at once and waits for all; the ids are those results had.
func run(t *testing.T, b *book, results []ledger.Settlement) *settle.Settler {
	t.Helper()
	s := settle.New(b, func(outbox.Batch) {}, zerolog.Nop())
	ctx, cancel := context.WithCancel(t.Context())
	var running, settling sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	for _, r := range results {
		settling.Go(func() {
			if err := s.Settle(ctx, r); err != nil {
				t.Error(err)
			}
		})
	}
	if b.blocking != nil {
		synctest.Wait() // one batch is being written, the others wait
		close(b.blocking)
	}
	settling.Wait()
	cancel()
	running.Wait()
	return s
}

func some(n int) []ledger.Settlement {
	out := make([]ledger.Settlement, n)
	for i := range out {
		out[i] = ledger.Settlement{Claimed: ledger.Claimed{ID: delivery.NewID()}, Decision: retry.Decision{State: delivery.Sent}}
	}
	return out
}

func TestWhatArrivesDuringAWriteGoesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{blocking: make(chan struct{})}
		s := run(t, b, some(settle.MaxBatch+101))
		// One batch with what was there, then the rest, which waited for it.
		if n := len(b.batches); n < 2 || n > 3 {
			t.Errorf("%d batches, want 2 or 3", n)
		}
		for _, batch := range b.batches {
			if len(batch) > settle.MaxBatch {
				t.Errorf("a batch of %d", len(batch))
			}
		}
		if got := s.Counts().Moved.Load(); got != settle.MaxBatch+101 {
			t.Errorf("%d moved", got)
		}
	})
}

func TestResultsWaitForADatabaseThatIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{away: 5}
		began := time.Now()
		s := run(t, b, some(3))
		if len(b.batches) == 0 || time.Since(began) < 20*time.Millisecond {
			t.Error("nothing was repeated, or without a pause")
		}
		if s.Healthy() != nil {
			t.Error("still sick after a write that went through")
		}
	})
}

func TestSickWhileResultsCannotBeStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &book{away: 1 << 30}
		s := settle.New(b, func(outbox.Batch) {}, zerolog.Nop())
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		failed := make(chan error, 1)
		go func() { failed <- s.Settle(ctx, some(1)[0]) }()
		synctest.Wait()
		if !errors.Is(s.Healthy(), settle.ErrUnstorable) {
			t.Error("healthy, though nothing can be stored")
		}
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("the result ended with %v", err)
		}
		synctest.Wait()
	})
}

func TestARefusedResultDoesNotHoldItsNeighbours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := some(10)
		b := &book{blocking: make(chan struct{}), bad: map[delivery.ID]bool{results[4].Claimed.ID: true}}
		s := run(t, b, results)
		if got := s.Counts().Moved.Load(); got != 9 {
			t.Errorf("%d moved, want 9", got)
		}
		if s.Healthy() != nil {
			t.Error("a refused result is no outage")
		}
	})
}

func TestStaleIsLateAndInterruptedIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		results := some(3)
		results[1].Decision = retry.Decision{GiveBack: true}
		b := &book{answers: map[delivery.ID]ledger.Settled{results[0].Claimed.ID: ledger.Stale, results[2].Claimed.ID: ledger.Already}}
		s := run(t, b, results)
		if len(b.late) != 1 || b.late[0].Claimed.ID != results[0].Claimed.ID {
			t.Errorf("late: %d", len(b.late))
		}
		if len(b.back) != 1 || b.back[0].Claimed.ID != results[1].Claimed.ID {
			t.Errorf("given back: %d", len(b.back))
		}
		if c := s.Counts(); c.Already.Load() != 1 || c.Moved.Load() != 0 {
			t.Errorf("already %d, moved %d", c.Already.Load(), c.Moved.Load())
		}
	})
}
