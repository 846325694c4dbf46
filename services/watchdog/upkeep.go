package watchdog

import (
	"context"
	"errors"
)

// upkeep makes history partitions ahead of time and forgets lapsed workers.
func (w *watchdog) upkeep(ctx context.Context) error {
	made, err := w.book.EnsureHistory(ctx)
	if made > 0 {
		w.log.Info().Int("partitions", made).Msg("history partitions made")
	}
	return errors.Join(err, w.book.ForgetWorkers(ctx))
}
