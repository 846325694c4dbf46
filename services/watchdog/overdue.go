package watchdog

import "context"

// sweepOverdue ends deliveries whose expires_at has passed while they waited.
func (w *watchdog) sweepOverdue(ctx context.Context) error {
	for {
		found, err := w.book.Overdue(ctx, page)
		if err != nil || len(found) == 0 {
			return err
		}
		progress := false
		for _, id := range found {
			events, ended, err := w.book.Expire(ctx, id)
			if err != nil {
				return err
			}
			if ended {
				w.hand(events)
				progress = true
				w.log.Warn().Stringer("delivery", id).Msg("expired while it waited")
			}
		}
		if !progress { // all were taken by somebody else meanwhile
			return nil
		}
	}
}
