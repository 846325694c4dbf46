package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// EventKey names one event: (aggregate, version).
type EventKey struct {
	Aggregate delivery.ID
	Version   int32
}

func (k EventKey) String() string { return delivery.EventID(k.Aggregate, int(k.Version)) }

// BookedEvent is an event of the book. Subject and Body are there where a method
// says so.
type BookedEvent struct {
	EventKey

	At      time.Time
	Subject string
	Body    []byte
}

// Which narrows a stretch of events; empty fields match all.
type Which struct{ Tenant, State string }

// Now is the database's clock, by which events are booked.
func (l *Ledger) Now(ctx context.Context) (time.Time, error) {
	var now time.Time
	if err := l.db.QueryRow(ctx, databaseTime).Scan(&now); err != nil {
		return now, fmt.Errorf("read the database's clock: %w", err)
	}
	return now, nil
}

// SummarizeEvents makes searches by time fast for what was booked lately. It gives
// up where another upkeep of the table is under way.
func (l *Ledger) SummarizeEvents(ctx context.Context) error {
	p := &pipeline{}
	p.Exec(impatient)
	p.Exec(summarizeEvents)
	if err := l.run(ctx, p); err != nil {
		return fmt.Errorf("summarise the times of events: %w", err)
	}
	return nil
}

// EventsBetween lists what was booked from one moment until before another, oldest
// first, without subjects and bodies. The caller keeps the stretch short.
func (l *Ledger) EventsBetween(ctx context.Context, from, until time.Time, w Which) ([]BookedEvent, error) {
	var found []BookedEvent
	p := &pipeline{}
	p.Exec(pinRange)
	p.Query(eventsBetween, func(rows pgx.Rows) error {
		e, err := scanEvent(rows)
		found = append(found, e)
		return err
	}, from, until, w.Tenant, w.State)
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("list events from %s to %s: %w", from.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339), err)
	}
	return found, nil
}

// CountEvents counts what EventsBetween would list.
func (l *Ledger) CountEvents(ctx context.Context, from, until time.Time, w Which) (int64, error) {
	var n int64
	p := &pipeline{}
	p.Exec(pinRange)
	p.Query(countEvents, func(rows pgx.Rows) error { return rows.Scan(&n) }, from, until, w.Tenant, w.State)
	if err := l.run(ctx, p); err != nil {
		return 0, fmt.Errorf("count events from %s to %s: %w", from.UTC().Format(time.RFC3339), until.UTC().Format(time.RFC3339), err)
	}
	return n, nil
}

// EventTimes tells which of these events are in the book and when they were booked.
func (l *Ledger) EventTimes(ctx context.Context, keys []EventKey) (map[EventKey]time.Time, error) {
	known := make(map[EventKey]time.Time, len(keys))
	p := newPipeline()
	aggregates, versions := columns(keys)
	p.Query(eventTimes, func(rows pgx.Rows) error {
		e, err := scanEvent(rows)
		known[e.EventKey] = e.At
		return err
	}, aggregates, versions)
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("look up %d events: %w", len(keys), err)
	}
	return known, nil
}

// EventBodies reads events whole, in the order of the keys; what is no longer in
// the book is left out.
func (l *Ledger) EventBodies(ctx context.Context, keys []EventKey) ([]BookedEvent, error) {
	found := make([]BookedEvent, 0, len(keys))
	p := newPipeline()
	aggregates, versions := columns(keys)
	p.Query(eventBodies, func(rows pgx.Rows) error {
		var subject string
		var body []byte
		e, err := scanEvent(rows, &subject, &body)
		e.Subject, e.Body = subject, body
		found = append(found, e)
		return err
	}, aggregates, versions)
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("read %d events: %w", len(keys), err)
	}
	return found, nil
}

// EventsInOutbox lists which of these events are still to be published.
func (l *Ledger) EventsInOutbox(ctx context.Context, keys []EventKey) ([]EventKey, error) {
	var found []EventKey
	p := &pipeline{}
	aggregates, versions := columns(keys)
	p.Query(eventsInOutbox, func(rows pgx.Rows) error {
		var k EventKey
		var id [16]byte
		err := rows.Scan(&id, &k.Version)
		k.Aggregate = id
		found = append(found, k)
		return err
	}, aggregates, versions)
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("look for %d events in the outbox: %w", len(keys), err)
	}
	return found, nil
}

func scanEvent(rows pgx.Rows, more ...any) (BookedEvent, error) {
	var e BookedEvent
	var id [16]byte
	err := rows.Scan(append([]any{&id, &e.Version, &e.At}, more...)...)
	e.Aggregate = id
	return e, err
}

func columns(keys []EventKey) (aggregates [][16]byte, versions []int32) {
	aggregates, versions = make([][16]byte, len(keys)), make([]int32, len(keys))
	for i, k := range keys {
		aggregates[i], versions[i] = k.Aggregate, k.Version
	}
	return aggregates, versions
}
