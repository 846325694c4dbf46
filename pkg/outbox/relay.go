package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/posthouse-io/posthouse/pkg/planted"
)

// Publisher brings messages to their stream and tells which it could not, by index.
type Publisher interface {
	Publish(ctx context.Context, messages []Message) map[int]error
}

const (
	mergeMessages = 1000 // most messages that go out together
	sweepRows     = 50   // most rows that one sweep takes
	maxTries      = 12   // refusals before a row counts as put aside
	longestWait   = 300  // seconds between two tries of a refused row
)

// Config is what a Relay needs.
type Config struct {
	DB        *pgxpool.Pool
	Publisher Publisher
	Poll      time.Duration // between sweeps; 0 = 2 s
	Log       zerolog.Logger
}

// Relay publishes what its process has written, and what a dead process has left.
type Relay struct {
	cfg       Config
	handed    chan Batch
	published atomic.Int64
	swept     atomic.Int64
	aside     atomic.Int64
}

// NewRelay makes a relay; Run starts it.
func NewRelay(cfg Config) *Relay {
	if cfg.Poll <= 0 {
		cfg.Poll = 2 * time.Second
	}
	return &Relay{cfg: cfg, handed: make(chan Batch, 256)}
}

// Hand takes over a batch that has just been committed. It never blocks: what
// does not fit is found by a sweep.
func (r *Relay) Hand(b Batch) {
	if len(b.Messages) == 0 {
		return
	}
	select {
	case r.handed <- b:
	default:
	}
}

// Published, Swept and Aside count messages acknowledged, rows that a sweep had
// to take, and rows that the stream has refused a dozen times.
func (r *Relay) Published() int64 { return r.published.Load() }
func (r *Relay) Swept() int64     { return r.swept.Load() }
func (r *Relay) Aside() int64     { return r.aside.Load() }

// Run publishes until taking ends, then what has been handed over before, until
// working ends. Nobody may call Hand after taking has ended.
func (r *Relay) Run(taking, working context.Context) error {
	done := make(chan []uuid.UUID, 64)
	var publishing, removing errgroup.Group
	removing.Go(func() error { r.remove(working, done); return nil })
	publishing.Go(func() error { r.publishHanded(taking, working, done); return nil })
	publishing.Go(func() error { r.sweepAll(taking, done); return nil })
	_ = publishing.Wait()
	close(done)
	return removing.Wait()
}

// publishHanded publishes what this process hands over, merging what is there.
func (r *Relay) publishHanded(taking, working context.Context, done chan<- []uuid.UUID) {
	for {
		var batches []Batch
		select {
		case b := <-r.handed:
			batches = append(batches, b)
		case <-taking.Done():
			select {
			case b := <-r.handed:
				batches = append(batches, b)
			default:
				return
			}
		}
		n := len(batches[0].Messages)
	merge:
		for n < mergeMessages {
			select {
			case b := <-r.handed:
				batches = append(batches, b)
				n += len(b.Messages)
			default:
				break merge
			}
		}
		if working.Err() != nil {
			return
		}
		failed := r.publish(working, batches, done)
		for id, err := range failed {
			r.cfg.Log.Debug().Err(err).Stringer("outbox", id).Msg("not published; a sweep will try again")
		}
	}
}

// publish sends all messages of the batches, hands on the rows that are through
// and returns the others with one cause each.
func (r *Relay) publish(ctx context.Context, batches []Batch, done chan<- []uuid.UUID) map[uuid.UUID]error {
	var messages []Message
	var owner []int
	for i, b := range batches {
		messages = append(messages, b.Messages...)
		for range b.Messages {
			owner = append(owner, i)
		}
	}
	for _, b := range planted.Among(planted.Outbox, batches) {
		_, _ = r.cfg.DB.Exec(ctx, remove, [][16]byte{b.ID})
	}
	failed := make(map[uuid.UUID]error)
	for i, err := range r.cfg.Publisher.Publish(ctx, messages) {
		failed[batches[owner[i]].ID] = err
	}
	through := make([]uuid.UUID, 0, len(batches))
	for _, b := range batches {
		if failed[b.ID] == nil {
			through = append(through, b.ID)
			r.published.Add(int64(len(b.Messages)))
		}
	}
	if len(through) > 0 {
		done <- through
	}
	return failed
}

// remove deletes published rows, many at a time. Rows it cannot delete are
// published again by a sweep, which the stream drops.
func (r *Relay) remove(ctx context.Context, done <-chan []uuid.UUID) {
	for ids := range done {
	merge:
		for len(ids) < 10*mergeMessages {
			select {
			case more, ok := <-done:
				if !ok {
					break merge
				}
				ids = append(ids, more...)
			default:
				break merge
			}
		}
		keys := make([][16]byte, len(ids))
		for i, id := range ids {
			keys[i] = id
		}
		if _, err := r.cfg.DB.Exec(ctx, remove, keys); err != nil && ctx.Err() == nil {
			r.cfg.Log.Debug().Err(err).Int("rows", len(ids)).Msg("published rows not removed; a sweep will")
		}
	}
}

// sweepAll looks for rows whose writer died, until taking ends.
func (r *Relay) sweepAll(ctx context.Context, done chan<- []uuid.UUID) {
	for {
		wait := r.cfg.Poll * time.Duration(80+rand.N(40)) / 100
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
		for {
			n, err := r.sweep(ctx, done)
			if err != nil && ctx.Err() == nil {
				r.cfg.Log.Warn().Err(err).Msg("cannot sweep the outbox; trying again")
			}
			if err != nil || n < sweepRows {
				break
			}
		}
	}
}

// sweep takes and publishes one page of abandoned rows and returns how many it took.
func (r *Relay) sweep(ctx context.Context, done chan<- []uuid.UUID) (int, error) {
	rows, err := r.take(ctx)
	if err != nil {
		return 0, err
	}
	r.swept.Add(int64(len(rows)))
	batches := make([]Batch, len(rows))
	tries := make(map[uuid.UUID]int, len(rows))
	for i := range rows {
		if batches[i], err = r.load(ctx, rows[i]); err != nil {
			return 0, err
		}
		tries[rows[i].id] = rows[i].tries
	}
	var unreachable error
	for id, err := range r.publish(ctx, batches, done) {
		if isUnreachable(err) {
			unreachable = err
			continue
		}
		if err := r.postpone(ctx, id, tries[id]+1, err); err != nil {
			return 0, err
		}
	}
	if unreachable != nil {
		return 0, fmt.Errorf("publish: %w", unreachable)
	}
	return len(rows), nil
}

// row is an outbox row as a sweep takes it.
type row struct {
	id         uuid.UUID
	tries      int
	aggregates [][16]byte
	versions   []int32
	ids        []string
	subjects   []string
	bodies     [][]byte
}

func (r *Relay) take(ctx context.Context) ([]row, error) {
	found, err := r.cfg.DB.Query(ctx, lease, sweepRows)
	if err != nil {
		return nil, fmt.Errorf("take outbox rows: %w", err)
	}
	rows, err := pgx.CollectRows(found, func(c pgx.CollectableRow) (row, error) {
		var w row
		var id [16]byte
		err := c.Scan(&id, &w.tries, &w.aggregates, &w.versions, &w.ids, &w.subjects, &w.bodies)
		w.id = id
		return w, err
	})
	if err != nil {
		return nil, fmt.Errorf("take outbox rows: %w", err)
	}
	return rows, nil
}

// load gives a row its messages: those it carries and those it refers to.
func (r *Relay) load(ctx context.Context, w row) (Batch, error) {
	b := Batch{ID: w.id}
	for i := range w.ids {
		b.Messages = append(b.Messages, Message{ID: w.ids[i], Subject: w.subjects[i], Body: w.bodies[i]})
	}
	if len(w.aggregates) == 0 {
		return b, nil
	}
	events, err := r.cfg.DB.Query(ctx, referenced, w.aggregates, w.versions)
	if err != nil {
		return b, fmt.Errorf("read events of outbox row %s: %w", w.id, err)
	}
	defer events.Close()
	for events.Next() {
		var aggregate [16]byte
		var version int
		var m Message
		if err := events.Scan(&aggregate, &version, &m.Subject, &m.Body, &m.Trace); err != nil {
			return b, fmt.Errorf("read events of outbox row %s: %w", w.id, err)
		}
		m.ID = fmt.Sprintf("%s.%d", uuid.UUID(aggregate), version)
		b.Messages = append(b.Messages, m)
	}
	if err := events.Err(); err != nil {
		return b, fmt.Errorf("read events of outbox row %s: %w", w.id, err)
	}
	if missing := len(w.ids) + len(w.aggregates) - len(b.Messages); missing > 0 {
		r.cfg.Log.Error().Stringer("outbox", w.id).Int("missing", missing).Msg("events that this outbox row names are no longer in the history and cannot be published")
	}
	return b, nil
}

// postpone keeps a refused row away, each time twice as long up to five minutes.
// It never gives a row up: a stream that is full refuses everything, and takes
// everything again once there is room.
func (r *Relay) postpone(ctx context.Context, id uuid.UUID, tries int, cause error) error {
	seconds := float64(longestWait)
	if tries < maxTries {
		seconds = min(float64(int(1)<<tries), longestWait)
	} else {
		if tries == maxTries {
			r.aside.Add(1)
		}
		r.cfg.Log.Error().Err(cause).Stringer("outbox", id).Int("tries", tries).Msg("the stream keeps refusing this outbox row; it is tried again every five minutes")
	}
	if _, err := r.cfg.DB.Exec(ctx, postpone, [16]byte(id), seconds); err != nil {
		return fmt.Errorf("postpone outbox row %s: %w", id, err)
	}
	return nil
}
