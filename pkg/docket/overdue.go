package docket

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/pinned"
)

// DueAnswers lists documents whose deadline for the backend's word has passed, the
// oldest first.
func (d *Docket) DueAnswers(ctx context.Context, limit int) ([]delivery.ID, error) {
	var found []delivery.ID
	p := pinned.New()
	p.Query(dueDeadlines, func(rows pgx.Rows) error {
		var id [16]byte
		err := rows.Scan(&id)
		found = append(found, id)
		return err
	}, limit)
	if err := p.Run(ctx, d.db); err != nil {
		return nil, fmt.Errorf("list overdue answers: %w", err)
	}
	return found, nil
}

// Answer answers C2 in place of a backend that was silent for too long. answered is
// false when there was nothing to answer any more: then only the due row goes, or is
// put right.
func (d *Docket) Answer(ctx context.Context, id delivery.ID) (m Moved, answered bool, err error) {
	var due time.Time
	m, err = d.Change(ctx, id, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
		var decision document.Decision
		decision, answered = f.Overdue(d.policy, now)
		due, _ = f.MLSDeadline(d.policy)
		return decision, nil
	}, func(ctx context.Context, tx pgx.Tx) error {
		var err error
		switch {
		case answered:
		case due.IsZero():
			_, err = tx.Exec(ctx, dropDeadline, [16]byte(id))
		default:
			_, err = tx.Exec(ctx, putDeadline, [16]byte(id), due)
		}
		return err
	})
	return m, answered, err
}

// NextAnswer tells how long until the next deadline; negative: there is none.
func (d *Docket) NextAnswer(ctx context.Context) (time.Duration, error) {
	wait := time.Duration(-1)
	p := pinned.New()
	p.Query(nextDeadline, func(rows pgx.Rows) error {
		var seconds float64
		err := rows.Scan(&seconds)
		wait = max(0, time.Duration(seconds*float64(time.Second)))
		return err
	})
	if err := p.Run(ctx, d.db); err != nil {
		return -1, fmt.Errorf("next deadline: %w", err)
	}
	return wait, nil
}
