package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/streams"
)

// Lag is how far things are behind, as the database sees it. Zero: not at all.
type Lag struct {
	Outbox      float64 // seconds since the oldest unpublished row was written
	OutboxTries int     // how often the stream has refused that row
	Ready       float64 // seconds that the longest waiting row of an open lane could have been claimed
	ReadyLane   string
	ReadyTenant string
	Waiting     float64 // seconds that a row is due without any sender having looked at it
	Oldest      float64 // seconds that the oldest open transaction is old
	OldestWhat  string
	Pinned      float64 // transactions since the oldest snapshot that keeps dead rows
	PinnedWhat  string
	Dead        float64 // dead rows of the queue
	Alarms      []delivery.Alarm
}

// Lag measures, in one round trip.
func (l *Ledger) Lag(ctx context.Context) (Lag, error) {
	var g Lag
	p := newPipeline()
	p.Query(oldestOutbox, func(rows pgx.Rows) error { return rows.Scan(&g.Outbox, &g.OutboxTries) })
	p.Query(oldestReady, func(rows pgx.Rows) error { return rows.Scan(&g.Ready, &g.ReadyLane, &g.ReadyTenant) })
	p.Query(oldestWaiting, func(rows pgx.Rows) error { return rows.Scan(&g.Waiting) })
	p.Query(snapshotPins, func(rows pgx.Rows) error {
		var what string
		var seconds *float64
		var transactions *int64
		if err := rows.Scan(&what, &seconds, &transactions); err != nil {
			return err
		}
		if seconds != nil && *seconds > g.Oldest {
			g.Oldest, g.OldestWhat = *seconds, what
		}
		if transactions != nil && float64(*transactions) > g.Pinned {
			g.Pinned, g.PinnedWhat = float64(*transactions), what
		}
		return nil
	})
	p.Query(queueDead, func(rows pgx.Rows) error { return rows.Scan(&g.Dead) })
	p.Query(selectAlarms, func(rows pgx.Rows) error {
		a, err := scanAlarm(rows)
		g.Alarms = append(g.Alarms, a)
		return err
	})
	if err := l.run(ctx, p); err != nil {
		return Lag{}, fmt.Errorf("measure lag: %w", err)
	}
	return g, nil
}

// Alarms lists every alarm that was ever raised, and whether it still is.
func (l *Ledger) Alarms(ctx context.Context) ([]delivery.Alarm, error) {
	list := []delivery.Alarm{}
	p := newPipeline()
	p.Query(selectAlarms, func(rows pgx.Rows) error {
		a, err := scanAlarm(rows)
		list = append(list, a)
		return err
	})
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("list alarms: %w", err)
	}
	return list, nil
}

func scanAlarm(rows pgx.Rows) (delivery.Alarm, error) {
	var a delivery.Alarm
	err := rows.Scan(&a.Name, &a.Raised, &a.Version, &a.Value, &a.Text, &a.ChangedAt)
	return a, err
}

// Announce raises or clears an alarm, by the state of a, and writes the outbox row
// that tells of it in the same transaction. False: it was so already, by whoever
// came first.
func (l *Ledger) Announce(ctx context.Context, a delivery.Alert) (batch outbox.Batch, changed bool, err error) {
	batch.ID = newBatchID()
	sql := raiseAlarm
	if a.State == delivery.AlertCleared {
		sql = clearAlarm
	}
	err = l.begin(ctx, "alarm "+a.Name+" "+string(a.State), func(tx pgx.Tx) error {
		batch.Messages, changed = nil, false
		err := tx.QueryRow(ctx, sql, a.Name, a.Value, delivery.Bound(a.Text)).Scan(&a.Version)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		body, err := a.Encode()
		if err != nil {
			return err
		}
		m := outbox.Message{ID: a.Event, Subject: streams.Event(streams.KindAlert, string(a.State), a.Channel, a.Tenant), Body: body}
		batch.Messages, changed = []outbox.Message{m}, true
		_, err = tx.Exec(ctx, outbox.InsertMessages, [16]byte(batch.ID), []string{m.ID}, []string{m.Subject}, [][]byte{m.Body})
		return err
	})
	if err != nil {
		return outbox.Batch{}, false, err
	}
	return batch, changed, nil
}
