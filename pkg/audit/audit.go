// Package audit writes down who did what, to what, and why, in the transaction of
// the action itself: an action without its entry cannot happen, nor an entry
// without its action. It decides nothing, keeps no state and starts no goroutine.
package audit

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Write adds one entry per target; results says what became of each.
func Write(ctx context.Context, tx pgx.Tx, w delivery.Warrant, action string, targets, results []string) error {
	rows := make([][16]byte, len(targets))
	for i := range rows {
		rows[i] = uuid.Must(uuid.NewV7()) // of version 7, so entries stand in the order of time
	}
	if _, err := tx.Exec(ctx, insert, w.By, action, w.Why, rows, targets, results); err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	return nil
}
