package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrDutyLost says that a duty's lease ran out: another instance may be at it.
var ErrDutyLost = errors.New("the lease of this duty has run out")

// Duty is work that one instance of the house does at a time, under a lease in the
// database.
type Duty struct {
	Last  json.RawMessage // result of the last time; nil: there was none
	book  *Ledger
	name  string
	owner string
	term  time.Duration
}

// TakeDuty takes a duty that nobody has and that was last done at least every ago;
// nil: not now. The owner must renew it within the term, and End it.
func (l *Ledger) TakeDuty(ctx context.Context, name, owner string, term, every time.Duration) (*Duty, error) {
	d := &Duty{book: l, name: name, owner: owner, term: term}
	var last []byte
	err := l.db.QueryRow(ctx, takeDuty, name, owner, term.Seconds(), every.Seconds()).Scan(&last)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take duty %s: %w", name, err)
	}
	d.Last = last
	return d, nil
}

// Renew keeps the duty for another term; ErrDutyLost when it was too late.
func (d *Duty) Renew(ctx context.Context) error {
	tag, err := d.book.db.Exec(ctx, renewDuty, d.name, d.owner, d.term.Seconds())
	if err != nil {
		return fmt.Errorf("renew duty %s: %w", d.name, err)
	}
	if tag.RowsAffected() == 0 {
		return fmt.Errorf("renew duty %s: %w", d.name, ErrDutyLost)
	}
	return nil
}

// End leaves the duty: with a result it counts as done, with nil it is free to be
// taken again at once.
func (d *Duty) End(ctx context.Context, result any) error {
	var text []byte
	if result != nil {
		var err error
		if text, err = json.Marshal(result); err != nil {
			return fmt.Errorf("end duty %s: %w", d.name, err)
		}
	}
	if _, err := d.book.db.Exec(ctx, endDuty, d.name, d.owner, text); err != nil {
		return fmt.Errorf("end duty %s: %w", d.name, err)
	}
	return nil
}

// LastDuty reads the result of the last time that a duty was done; false: never.
func (l *Ledger) LastDuty(ctx context.Context, name string, into any) (bool, error) {
	var at *time.Time
	var result []byte
	err := l.db.QueryRow(ctx, selectDuty, name).Scan(&at, &result)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && result == nil {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(result, into)
	}
	if err != nil {
		return false, fmt.Errorf("last result of duty %s: %w", name, err)
	}
	return true, nil
}
