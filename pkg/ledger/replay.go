package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// AddReplay writes a replay down; from then on it runs, whoever dies. total is nil
// when it is not known.
func (l *Ledger) AddReplay(ctx context.Context, r delivery.Replay) (*delivery.Replay, error) {
	id := delivery.NewID()
	if _, err := l.db.Exec(ctx, insertReplay, [16]byte(id), r.Since, r.Until, r.Tenant, r.State, storable(r.By), r.Total); err != nil {
		return nil, fmt.Errorf("add replay: %w", err)
	}
	return l.Replay(ctx, id)
}

// Replay reads one; ErrNotFound when there is none.
func (l *Ledger) Replay(ctx context.Context, id delivery.ID) (*delivery.Replay, error) {
	return l.oneReplay(ctx, selectReplay, [16]byte(id))
}

// NextReplay reads the oldest that is not finished; nil: there is none.
func (l *Ledger) NextReplay(ctx context.Context) (*delivery.Replay, error) {
	r, err := l.oneReplay(ctx, nextReplay)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return r, err
}

// Replays lists the last ones, newest first.
func (l *Ledger) Replays(ctx context.Context, limit int) ([]delivery.Replay, error) {
	rows, err := l.db.Query(ctx, selectReplays, limit)
	if err != nil {
		return nil, fmt.Errorf("list replays: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanReplay)
	if err != nil {
		return nil, fmt.Errorf("list replays: %w", err)
	}
	return list, nil
}

// AdvanceReplay says that everything before reached is published, n events more
// than at before. False: it is no longer where the caller left it, or not running.
func (l *Ledger) AdvanceReplay(ctx context.Context, id delivery.ID, before, reached time.Time, n int64) (bool, error) {
	tag, err := l.db.Exec(ctx, advanceReplay, [16]byte(id), before, reached, n)
	if err != nil {
		return false, fmt.Errorf("advance replay %s: %w", id, err)
	}
	return tag.RowsAffected() == 1, nil
}

// BlameReplay notes why a replay does not move.
func (l *Ledger) BlameReplay(ctx context.Context, id delivery.ID, fault string) error {
	if _, err := l.db.Exec(ctx, blameReplay, [16]byte(id), delivery.Bound(fault)); err != nil {
		return fmt.Errorf("note the fault of replay %s: %w", id, err)
	}
	return nil
}

// CancelReplay stops a replay after its present page; false: it does not run.
func (l *Ledger) CancelReplay(ctx context.Context, id delivery.ID) (bool, error) {
	tag, err := l.db.Exec(ctx, cancelReplay, [16]byte(id))
	if err != nil {
		return false, fmt.Errorf("cancel replay %s: %w", id, err)
	}
	return tag.RowsAffected() == 1, nil
}

func (l *Ledger) oneReplay(ctx context.Context, sql string, args ...any) (*delivery.Replay, error) {
	rows, err := l.db.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("read replay: %w", err)
	}
	r, err := pgx.CollectExactlyOneRow(rows, scanReplay)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("read replay: %w", err)
	}
	return &r, nil
}

func scanReplay(row pgx.CollectableRow) (delivery.Replay, error) {
	var r delivery.Replay
	var id [16]byte
	err := row.Scan(&id, &r.Since, &r.Until, &r.Tenant, &r.State, &r.By, &r.Status, &r.Reached, &r.Total, &r.Published, &r.Fault, &r.CreatedAt, &r.FinishedAt)
	r.ID = (*delivery.ID)(&id)
	return r, err
}
