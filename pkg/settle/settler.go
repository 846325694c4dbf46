package settle

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
)

// MaxBatch is how many results one transaction takes.
const MaxBatch = 500

// ErrUnstorable says that results cannot be stored at the moment.
var ErrUnstorable = errors.New("results cannot be stored: the database does not answer")

// Book is what a settler writes to: the ledger.
type Book interface {
	Settle(ctx context.Context, settlements []ledger.Settlement) ([]ledger.Settled, outbox.Batch, error)
	GiveBack(ctx context.Context, settlements []ledger.Settlement) error
	Late(ctx context.Context, s ledger.Settlement) (bool, outbox.Batch, error)
}

// Settler batches results into the book and hands the events on.
type Settler struct {
	book Book
	hand func(outbox.Batch)
	log  zerolog.Logger

	in     chan result
	sick   atomic.Bool
	counts Counts
}

// Counts are totals since the start.
type Counts struct{ Moved, Already, Late, GivenBack, Batches atomic.Int64 }

type result struct {
	s    ledger.Settlement
	done chan<- struct{}
}

// New makes a settler that hands the events of each commit to hand.
func New(book Book, hand func(outbox.Batch), log zerolog.Logger) *Settler {
	return &Settler{book: book, hand: hand, log: log, in: make(chan result)}
}

// Counts gives the live totals.
func (s *Settler) Counts() *Counts { return &s.counts }

// Healthy is nil while results can be stored.
func (s *Settler) Healthy() error {
	if s.sick.Load() {
		return ErrUnstorable
	}
	return nil
}

// Settle returns when the result is stored (or kept as late evidence), or when
// ctx ends: then the lease runs out and the sweep finds an attempt of unknown
// outcome.
func (s *Settler) Settle(ctx context.Context, settlement ledger.Settlement) error {
	done := make(chan struct{})
	select {
	case s.in <- result{settlement, done}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run stores results until ctx ends. End it after the last Settle has returned.
func (s *Settler) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case first := <-s.in:
			s.store(ctx, s.gather(first))
		}
	}
}

func (s *Settler) gather(first result) []result {
	batch := []result{first}
	for len(batch) < MaxBatch {
		select {
		case r := <-s.in:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

// store writes a batch, one transaction for the moves and one for what is given back.
func (s *Settler) store(ctx context.Context, batch []result) {
	var moves, backs []result
	for _, r := range batch {
		if r.s.Decision.GiveBack {
			backs = append(backs, r)
		} else {
			moves = append(moves, r)
		}
	}
	s.counts.Batches.Add(1)
	s.each(ctx, moves, s.move)
	s.each(ctx, backs, func(ctx context.Context, backs []result) error {
		err := s.book.GiveBack(ctx, settlements(backs))
		if err == nil {
			s.counts.GivenBack.Add(int64(len(backs)))
		}
		return err
	})
	for _, r := range batch {
		close(r.done)
	}
}

// each repeats write until it succeeds or ctx ends. When the database refuses
// the content of a batch, its results are written one by one, and the one that
// is refused alone is told and given up.
func (s *Settler) each(ctx context.Context, batch []result, write func(context.Context, []result) error) {
	if len(batch) == 0 {
		return
	}
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := write(ctx, batch)
		switch {
		case err == nil:
			s.sick.Store(false)
			return
		case ctx.Err() != nil:
			return
		case ledger.Refused(err) && len(batch) > 1:
			for i := range batch {
				s.each(ctx, batch[i:i+1], write)
			}
			return
		case ledger.Refused(err):
			s.log.Error().Err(err).Stringer("delivery", batch[0].s.Claimed.ID).Msg("the database refuses this result; the sweep will settle the attempt as unknown")
			return
		}
		if !s.sick.Swap(true) {
			s.log.Warn().Err(err).Int("results", len(batch)).Msg("results cannot be stored; trying again, and nothing new is sent")
		}
		t := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

func (s *Settler) move(ctx context.Context, batch []result) error {
	results, events, err := s.book.Settle(ctx, settlements(batch))
	s.hand(events)
	if err != nil {
		return err
	}
	for i, r := range results {
		switch r {
		case ledger.Moved:
			s.counts.Moved.Add(1)
		case ledger.Already:
			s.counts.Already.Add(1)
		case ledger.Stale:
			if err := s.late(ctx, batch[i].s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Settler) late(ctx context.Context, l ledger.Settlement) error {
	accepted, events, err := s.book.Late(ctx, l)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	s.hand(events)
	s.counts.Late.Add(1)
	s.log.Warn().Stringer("delivery", l.Claimed.ID).Int32("fence", l.Claimed.Fence).Str("verdict", l.Verdict.String()).Bool("accepted", accepted).
		Msg("a result came after the delivery had moved on")
	return nil
}

func settlements(batch []result) []ledger.Settlement {
	out := make([]ledger.Settlement, len(batch))
	for i, r := range batch {
		out[i] = r.s
	}
	return out
}
