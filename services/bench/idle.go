package bench

import (
	"context"
	"time"
)

// idle counts the statements per second of a sender that has nothing to do. ok
// is false where nobody counts them.
func (s *servers) idle(ctx context.Context, settle, during time.Duration) (rate float64, ok bool, err error) {
	err = s.on(ctx, ground{}, func(ctx context.Context, at *site) error {
		return at.sending(ctx, noop(1), func(ctx context.Context) error {
			if err := wait(ctx, settle); err != nil {
				return err
			}
			before, _, err := s.statements(ctx, at.database)
			if err != nil {
				return err
			}
			began := time.Now()
			if err := wait(ctx, during); err != nil {
				return err
			}
			after, counted, err := s.statements(ctx, at.database)
			rate, ok = (after-before)/time.Since(began).Seconds(), counted
			return err
		})
	})
	return rate, ok, err
}
