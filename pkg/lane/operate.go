package lane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/audit"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/streams"
)

// Force opens a lane's breaker for a while: maintenance on the other side. What an
// earlier opening has sent to wait, waits for this one's end.
func (l *Lanes) Force(ctx context.Context, c delivery.LaneCommand) (View, error) {
	return l.command(ctx, c, "breaker.open", delivery.LaneOpen, "opened by an operator", force, c.Key, time.Duration(c.For).Seconds(), delivery.Bound(c.Why))
}

// Reset closes a lane's breaker and forgets its failures and caps. What met the open
// breaker after it had been claimed is due at once.
func (l *Lanes) Reset(ctx context.Context, c delivery.LaneCommand) (View, error) {
	return l.command(ctx, c, "breaker.reset", delivery.LaneClosed, "reset by an operator", reset, c.Key)
}

func (l *Lanes) command(ctx context.Context, c delivery.LaneCommand, action string, state delivery.LaneState, text, sql string, args ...any) (View, error) {
	var v View
	var batch outbox.Batch
	err := pgx.BeginFunc(ctx, l.db, func(tx pgx.Tx) error {
		batch = outbox.Batch{ID: uuid.Must(uuid.NewV7())}
		var found bool
		var err error
		if v, found, err = view(ctx, tx, sql, args...); err != nil {
			return err
		}
		if !found {
			return ErrNotFound
		}
		if err := hurry(ctx, tx, v.ID); err != nil {
			return err
		}
		e := event(v, state, text)
		e.Event, e.Lane, e.Version, e.By, e.Cause = delivery.LaneEventID(v.ID, int(v.Version)), v.Key, int(v.Version), c.By, delivery.Bound(c.Why)
		if err := put(ctx, tx, &batch, e); err != nil {
			return err
		}
		return audit.Write(ctx, tx, c.Warrant, action, []string{v.Key}, []string{"done"})
	})
	if err != nil {
		return v, fmt.Errorf("%s %s: %w", action, c.Key, err)
	}
	l.publish(batch)
	return v, nil
}

// Pause lets a lane, a tenant or a channel rest: what arrives is kept, and nothing
// counts. Resume ends that.
func (l *Lanes) Pause(ctx context.Context, c delivery.PauseCommand) error {
	_, err := l.turn(ctx, c, delivery.LanePaused)
	return err
}

// Resume ends a pause; false: there was none, or it had run out by itself.
func (l *Lanes) Resume(ctx context.Context, c delivery.PauseCommand) (bool, error) {
	return l.turn(ctx, c, delivery.LaneResumed)
}

func (l *Lanes) turn(ctx context.Context, c delivery.PauseCommand, state delivery.LaneState) (done bool, err error) {
	var seconds *float64
	if c.For > 0 {
		s := time.Duration(c.For).Seconds()
		seconds = &s
	}
	e := &delivery.LaneEvent{State: state, By: c.By, Cause: delivery.Bound(c.Why), Text: c.Scope + " " + c.Name + " " + string(state) + " by an operator"}
	var batch outbox.Batch
	err = pgx.BeginFunc(ctx, l.db, func(tx pgx.Tx) error {
		done, batch = false, outbox.Batch{ID: uuid.Must(uuid.NewV7())}
		var err error
		if c.Scope == "lane" {
			err = l.turnLane(ctx, tx, c, state, seconds, e)
		} else {
			err = l.turnScope(ctx, tx, c, state, seconds, e)
		}
		result := "done"
		switch {
		case errors.Is(err, pgx.ErrNoRows) && c.Scope == "lane" && state == delivery.LanePaused:
			return ErrNotFound
		case errors.Is(err, pgx.ErrNoRows):
			result = "was not paused"
		case err != nil:
			return err
		default:
			done = true
			if err := put(ctx, tx, &batch, e); err != nil {
				return err
			}
		}
		return audit.Write(ctx, tx, c.Warrant, string(state), []string{c.Scope + " " + c.Name}, []string{result})
	})
	if err != nil {
		return false, fmt.Errorf("%s %s %s: %w", state, c.Scope, c.Name, err)
	}
	l.publish(batch)
	return done, nil
}

func (l *Lanes) turnLane(ctx context.Context, tx pgx.Tx, c delivery.PauseCommand, state delivery.LaneState, seconds *float64, e *delivery.LaneEvent) error {
	var id int32
	var row pgx.Row
	if state == delivery.LanePaused {
		row = tx.QueryRow(ctx, pauseLane, c.Name, seconds, delivery.Bound(c.Why))
	} else {
		row = tx.QueryRow(ctx, resumeLane, c.Name)
	}
	var channel string
	if err := row.Scan(&id, &channel, &e.Version, &e.Until); err != nil {
		return err
	}
	e.Event, e.Lane = delivery.LaneEventID(id, e.Version), c.Name
	return hurry(ctx, tx, id)
}

// hurry has what was given back for the lane's breaker look at it as it is now.
func hurry(ctx context.Context, tx pgx.Tx, id int32) error {
	if _, err := tx.Exec(ctx, hasten, id); err != nil {
		return fmt.Errorf("hasten what was given back: %w", err)
	}
	return nil
}

func (l *Lanes) turnScope(ctx context.Context, tx pgx.Tx, c delivery.PauseCommand, state delivery.LaneState, seconds *float64, e *delivery.LaneEvent) error {
	var row pgx.Row
	if state == delivery.LanePaused {
		row = tx.QueryRow(ctx, pause, c.Scope, c.Name, seconds, delivery.Bound(c.Why), c.By)
	} else {
		row = tx.QueryRow(ctx, resume, c.Scope, c.Name)
	}
	if err := row.Scan(&e.Until); err != nil {
		return err
	}
	e.Event = "pause." + c.Scope + "." + c.Name + "." + uuid.Must(uuid.NewV7()).String()
	e.Channel, e.Tenant = streams.None, streams.None
	if c.Scope == "tenant" {
		e.Tenant = c.Name
	} else {
		e.Channel = c.Name
	}
	return nil
}

// Pauses lists the tenants and channels that rest.
func (l *Lanes) Pauses(ctx context.Context) ([]delivery.Pause, error) {
	rows, err := l.db.Query(ctx, selectPauses)
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p delivery.Pause, err error) {
		err = row.Scan(&p.Scope, &p.Name, &p.Until, &p.Why, &p.By, &p.Since)
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("list pauses: %w", err)
	}
	return list, nil
}

// List shows lanes; message makes of a view that is not closed what a person reads.
func (l *Lanes) List(ctx context.Context, f delivery.LaneFilter, message func(View) string) ([]delivery.LaneStatus, error) {
	rows, err := l.db.Query(ctx, selectLanes, f.Key, f.Trouble)
	if err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s delivery.LaneStatus, err error) {
		var v View
		err = scan(row.Scan, &v, &s.CapReason, &s.MaxInFlight, &s.RateLimit, &s.DailyLimit, &s.DayUsed, &s.FullUntil,
			&s.Paused, &s.PausedUntil, &s.PausedWhy, &s.InFlight, &s.Ready)
		s.Key, s.Breaker, s.Version, s.Forced, s.Failures, s.Cause, s.Cap, s.RateCap = v.Key, v.Breaker, int(v.Version), v.Forced, v.Failures, v.Cause, v.Cap, v.RateCap
		if !v.OpenedAt.IsZero() && v.Breaker != Closed {
			s.OpenedAt = &v.OpenedAt
		}
		if !v.ShutUntil.IsZero() {
			s.OpenUntil, s.Remaining = &v.ShutUntil, max(0, time.Until(v.ShutUntil).Seconds())
		}
		if v.Breaker != Closed {
			s.Message = message(v)
		} else {
			s.Cause = ""
		}
		if !s.Paused {
			s.PausedUntil, s.PausedWhy = nil, ""
		}
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list lanes: %w", err)
	}
	return list, nil
}
