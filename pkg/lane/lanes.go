package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/streams"
)

// ErrNotFound says that there is no such lane.
var ErrNotFound = errors.New("no such lane: `posthouse lanes` shows them")

// Lanes changes lanes. Hand takes what is to be published, after each commit.
type Lanes struct {
	db   *pgxpool.Pool
	hand func(outbox.Batch)
}

// New works on a migrated database.
func New(db *pgxpool.Pool, hand func(outbox.Batch)) *Lanes { return &Lanes{db: db, hand: hand} }

// DB is a pool or a transaction.
type DB interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// ID returns the id of the lane with this key and makes it when there is none.
// kind is what waits in it: delivery or document.
func ID(ctx context.Context, db DB, key, kind string) (int32, error) {
	var id int32
	err := db.QueryRow(ctx, selectID, key).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		if _, err = db.Exec(ctx, insertLane, key, kind); err == nil {
			err = db.QueryRow(ctx, selectID, key).Scan(&id)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("lane %s: %w", key, err)
	}
	return id, nil
}

// Parked is ID for a lane that is made paused, with the reason.
func Parked(ctx context.Context, db DB, key, kind, why string) (int32, error) {
	if _, err := db.Exec(ctx, insertParked, key, kind, why); err != nil {
		return 0, fmt.Errorf("lane %s: %w", key, err)
	}
	return ID(ctx, db, key, kind)
}

// View reads a lane as it is.
func (l *Lanes) View(ctx context.Context, id int32) (View, error) {
	v, _, err := view(ctx, l.db, selectView, id)
	if err != nil {
		return v, fmt.Errorf("lane %d: %w", id, err)
	}
	return v, nil
}

// view runs a statement that answers with a view; found: it had a row.
func view(ctx context.Context, db DB, sql string, args ...any) (v View, found bool, err error) {
	err = scan(db.QueryRow(ctx, sql, args...).Scan, &v)
	if errors.Is(err, pgx.ErrNoRows) {
		return v, false, nil
	}
	return v, err == nil, err
}

// change runs a guarded change and publishes what tell makes of it. Where the
// guard does not hold, it answers with the lane as it is.
func (l *Lanes) change(ctx context.Context, what string, id int32, tell func(View) *delivery.LaneEvent, sql string, args ...any) (v View, changed bool, err error) {
	var batch outbox.Batch
	err = pgx.BeginFunc(ctx, l.db, func(tx pgx.Tx) error {
		batch = outbox.Batch{ID: uuid.Must(uuid.NewV7())}
		v, changed, err = view(ctx, tx, sql, append([]any{id}, args...)...)
		if err != nil || !changed {
			return err
		}
		if e := tell(v); e != nil {
			e.Event, e.Lane, e.Version = delivery.LaneEventID(v.ID, int(v.Version)), v.Key, int(v.Version)
			return put(ctx, tx, &batch, e)
		}
		return nil
	})
	if err != nil {
		return v, false, fmt.Errorf("%s lane %d: %w", what, id, err)
	}
	l.publish(batch)
	if !changed {
		v, err = l.View(ctx, id)
	}
	return v, changed, err
}

func (l *Lanes) publish(batch outbox.Batch) {
	if len(batch.Messages) > 0 {
		l.hand(batch)
	}
}

// put writes the outbox row of one event.
func put(ctx context.Context, tx pgx.Tx, batch *outbox.Batch, e *delivery.LaneEvent) error {
	if e.At.IsZero() {
		e.At = time.Now().UTC()
	}
	if e.Channel == "" {
		e.Channel = channel(e.Lane)
	}
	if e.Tenant == "" {
		e.Tenant = streams.None
	}
	body, err := e.Encode()
	if err != nil {
		return err
	}
	m := outbox.Message{ID: e.Event, Subject: streams.Event(streams.KindLane, string(e.State), e.Channel, e.Tenant), Body: body}
	batch.Messages = append(batch.Messages, m)
	_, err = tx.Exec(ctx, outbox.InsertMessages, [16]byte(batch.ID), []string{m.ID}, []string{m.Subject}, [][]byte{m.Body})
	return err
}

// channel is the token of a lane's key in a subject.
func channel(key string) string {
	for i := range len(key) {
		if key[i] == '$' {
			key = key[:i]
			break
		}
	}
	if !streams.Token(key) {
		return streams.None
	}
	return key
}
