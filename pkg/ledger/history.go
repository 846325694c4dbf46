package ledger

import (
	"context"
	"fmt"
)

// EnsureHistory makes the history partitions from last month to three months
// ahead and returns how many were missing.
func (l *Ledger) EnsureHistory(ctx context.Context) (int, error) {
	var made int
	if err := l.db.QueryRow(ctx, ensureHistoryAhead).Scan(&made); err != nil {
		return 0, fmt.Errorf("make history partitions: %w", err)
	}
	return made, nil
}

// ensureMonths makes the partitions for the months that the ids fall in.
func (l *Ledger) ensureMonths(ctx context.Context, requests []Acceptance) error {
	made := make(map[string]bool)
	for _, r := range requests {
		at := r.ID.Time()
		if month := at.Format("2006-01"); !made[month] {
			made[month] = true
			if _, err := l.db.Exec(ctx, ensureHistory, at, 1); err != nil {
				return fmt.Errorf("make history partitions for %s: %w", month, err)
			}
		}
	}
	return nil
}
