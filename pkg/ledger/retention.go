package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Month is the first moment of a month, UTC: it names the partitions of history.
type Month time.Time

func (m Month) String() string   { return time.Time(m).Format("2006-01") }
func (m Month) begin() time.Time { return time.Time(m) }

// End is the first moment of the month after.
func (m Month) End() time.Time { return time.Time(m).AddDate(0, 1, 0) }

// Months lists the months that the history has tables for, oldest first.
func (l *Ledger) Months(ctx context.Context) ([]Month, error) {
	rows, err := l.db.Query(ctx, historyMonths)
	if err != nil {
		return nil, fmt.Errorf("list months of history: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list months of history: %w", err)
	}
	var months []Month
	for _, name := range names {
		if at, err := time.Parse("200601", name); err == nil {
			months = append(months, Month(at))
		}
	}
	return months, nil
}

// Why a month of history stays.
var (
	ErrMonthOpen  = errors.New("something in it is not finished or not published")
	ErrMonthYoung = errors.New("something in it was told lately, and the stream could not be rebuilt without it")
	ErrMonthBusy  = errors.New("its tables are in use")
)

// DropMonth removes the tables of one month, all or none. It refuses with
// ErrMonthOpen while anything in them is unfinished or unpublished, with
// ErrMonthYoung while they hold an event that is younger than told, and with
// ErrMonthBusy when the tables cannot be had at once: dropping a partition locks
// its parents, and whoever comes while we wait for that would wait with us. Then
// nothing has happened; try again.
func (l *Ledger) DropMonth(ctx context.Context, m Month, told time.Duration) error {
	now, err := l.Now(ctx)
	if err != nil {
		return err
	}
	// The long look first, beside everybody else's work; what comes to life again
	// meanwhile is in the queue, which is looked at once more under the lock.
	p := &pipeline{}
	p.Exec(pinRange)
	var unfinished, open, young bool
	p.Query(workBetween, func(rows pgx.Rows) error { return rows.Scan(&unfinished) }, m.begin(), m.End())
	p.Query(toldBetween, func(rows pgx.Rows) error { return rows.Scan(&young) }, m.begin(), m.End(), now.Add(-told))
	if err := l.run(ctx, p); err != nil {
		return fmt.Errorf("drop %s: %w", m, err)
	}
	if !unfinished && !young {
		if err := l.db.QueryRow(ctx, openBetween, m.begin(), m.End()).Scan(&open); err != nil {
			return fmt.Errorf("drop %s: %w", m, err)
		}
	}
	switch {
	case unfinished || open:
		return fmt.Errorf("drop %s: %w", m, ErrMonthOpen)
	case young:
		return fmt.Errorf("drop %s: %w", m, ErrMonthYoung)
	}
	err = pgx.BeginFunc(ctx, l.db, func(tx pgx.Tx) error {
		for _, sql := range []string{boundLocks, lockHistory} {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		if err := tx.QueryRow(ctx, workBetween, m.begin(), m.End()).Scan(&unfinished); err != nil {
			return err
		}
		if unfinished {
			return ErrMonthOpen
		}
		for _, parent := range []string{"delivery", "content", "recipient", "document", "document_body", "attempt", "event"} {
			table := pgx.Identifier{parent + "_" + m.begin().Format("200601")}
			if _, err := tx.Exec(ctx, "DROP TABLE IF EXISTS "+table.Sanitize()); err != nil {
				return err
			}
		}
		return nil
	})
	var pg *pgconn.PgError
	switch {
	case errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "40P01" || pg.Code == "57014"): // lock not available, deadlock, out of time
		return fmt.Errorf("drop %s: %w", m, ErrMonthBusy)
	case err != nil:
		return fmt.Errorf("drop %s: %w", m, err)
	}
	return nil
}

// Keys are the tables of first sight, which outlive the history.
type Keys string

const (
	RequestKeys  Keys = "request"
	DocumentKeys Keys = "document"
)

// DeleteKeys removes keys older than before whose deliveries or documents have left
// the history, looking at one page of them after the given id. It returns how many it
// removed and where to go on; done: there are no more. (A document may have two keys of
// one id, so a page may end between them: it is looked at again by the next round.)
func (l *Ledger) DeleteKeys(ctx context.Context, keys Keys, before time.Time, after delivery.ID, page int) (removed int64, next delivery.ID, done bool, err error) {
	sql := deleteKeys
	if keys == DocumentKeys {
		sql = deleteDocumentKeys
	}
	var seen int64
	next = after
	p := newPipeline()
	p.Query(sql, func(rows pgx.Rows) error {
		var id *[16]byte
		err := rows.Scan(&removed, &id, &seen)
		if id != nil {
			next = *id
		}
		return err
	}, [16]byte(after), before, page)
	if err := l.run(ctx, p); err != nil {
		return 0, after, false, fmt.Errorf("delete %s keys before %s: %w", keys, before.UTC().Format(time.RFC3339), err)
	}
	return removed, next, seen < int64(page), nil
}
