package watchdog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/streams"
)

const (
	retentionDuty  = "retention"
	retentionEvery = 6 * time.Hour
	dropTries      = 10
	keyPage        = 2000
)

// RetentionConfig says how long what is finished is kept.
type RetentionConfig struct {
	// Thirteen months: whoever compares a month with the same one a year ago finds
	// it whole, and "what became of last year's mail" has an answer.
	History time.Duration `env:"HISTORY_RETENTION" envDefault:"9600h" min:"0s" doc:"How long finished deliveries, their attempts and events are kept (400 days); whole months leave at once, when their last day is so old. 0 keeps all."`
	// A key protects for as long as the same request could come again: longer than
	// any stream, and longer than its delivery could be asked for.
	Keys time.Duration `env:"REQUEST_KEY_RETENTION" envDefault:"10560h" min:"0s" doc:"How long a request's id is remembered (440 days), so that the same request is not sent again; longer than the history and the streams. 0 keeps all."`
}

// Validate refuses a retention under which the book would be younger than what it
// must rebuild or recognise.
func (c RetentionConfig) Validate() error {
	var errs []error
	events, longest := streamAge(streams.Events), time.Duration(0)
	for _, d := range streams.Load() {
		if d.Config.Name == streams.Events || d.Config.Name == streams.Requests {
			longest = max(longest, d.Config.MaxAge)
		}
	}
	if c.History > 0 && c.History < events {
		errs = append(errs, fmt.Errorf("HISTORY_RETENTION: %s is less than the event stream holds (%s), which is rebuilt from the history", c.History, events))
	}
	if c.Keys > 0 && (c.Keys < longest || c.History == 0 || c.Keys < c.History) {
		errs = append(errs, fmt.Errorf("REQUEST_KEY_RETENTION: %s is less than HISTORY_RETENTION (%s) or than the streams hold (%s): a request could be sent twice", c.Keys, c.History, longest))
	}
	return errors.Join(errs...)
}

func streamAge(name string) time.Duration {
	for _, d := range streams.Load() {
		if d.Config.Name == name {
			return d.Config.MaxAge
		}
	}
	return 0
}

// pruned is the result of the duty.
type pruned struct {
	Months []string          `json:"months"`
	Kept   map[string]string `json:"kept,omitempty"` // months that are old enough, and why they stay
	Keys   int64             `json:"keys"`
}

// retention drops old months and forgets old keys: one instance at a time.
func (w *watchdog) retention(ctx context.Context) error {
	duty, err := w.book.TakeDuty(ctx, retentionDuty, w.instance, dutyTerm, retentionEvery)
	if err != nil || duty == nil {
		return err
	}
	now, err := w.book.Now(ctx)
	if err != nil {
		return joinEnd(ctx, duty, nil, err)
	}
	result, err := w.prune(ctx, now, func() error { return duty.Renew(ctx) })
	if err != nil {
		return joinEnd(ctx, duty, nil, fmt.Errorf("retention: %w", err))
	}
	return joinEnd(ctx, duty, result, nil)
}

func (w *watchdog) prune(ctx context.Context, now time.Time, alive func() error) (*pruned, error) {
	result := &pruned{Months: []string{}, Kept: make(map[string]string)}
	if keep := w.cfg.Retention.History; keep > 0 {
		months, err := w.book.Months(ctx)
		if err != nil {
			return nil, err
		}
		for _, m := range months {
			if m.End().After(now.Add(-keep)) {
				break
			}
			if err := w.drop(ctx, m, result, alive); err != nil {
				return nil, err
			}
		}
	}
	if keep := w.cfg.Retention.Keys; keep > 0 {
		if err := w.forgetKeys(ctx, now.Add(-keep), result, alive); err != nil {
			return nil, err
		}
	}
	return result, nil
}

// drop removes one month, trying again while its tables are busy: each try waits
// for them no longer than claims can bear.
func (w *watchdog) drop(ctx context.Context, m ledger.Month, result *pruned, alive func() error) error {
	for try := 1; ; try++ {
		if err := alive(); err != nil {
			return err
		}
		err := w.book.DropMonth(ctx, m, streamAge(streams.Events))
		switch {
		case err == nil:
			result.Months = append(result.Months, m.String())
			w.log.Warn().Stringer("month", m).Msg("a month of history has been dropped: deliveries, documents, attempts and events")
			return nil
		case errors.Is(err, ledger.ErrMonthBusy) && try < dropTries:
			if err := pause(ctx, time.Second/2+rand.N(time.Second)); err != nil {
				return err
			}
		case errors.Is(err, ledger.ErrMonthBusy), errors.Is(err, ledger.ErrMonthOpen), errors.Is(err, ledger.ErrMonthYoung):
			result.Kept[m.String()] = err.Error()
			w.log.Warn().Err(err).Stringer("month", m).Msg("a month of history is old enough to go and stays")
			return nil
		default:
			return err
		}
	}
}

func (w *watchdog) forgetKeys(ctx context.Context, before time.Time, result *pruned, alive func() error) error {
	for _, keys := range []ledger.Keys{ledger.RequestKeys, ledger.DocumentKeys} {
		var after delivery.ID
		for done := false; !done; {
			if err := alive(); err != nil {
				return err
			}
			var removed int64
			var err error
			if removed, after, done, err = w.book.DeleteKeys(ctx, keys, before, after, keyPage); err != nil {
				return err
			}
			result.Keys += removed
		}
	}
	if result.Keys > 0 {
		w.log.Info().Int64("keys", result.Keys).Time("before", before).Msg("old keys of requests and documents have been forgotten")
	}
	return nil
}
