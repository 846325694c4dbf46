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
