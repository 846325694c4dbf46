package watchdog

import (
	"context"
	"errors"
	"time"

	"github.com/posthouse-io/posthouse/pkg/ledger"
)

// joinEnd leaves a duty, even when ctx has ended: the next one need not wait for the
// lease to run out. A nil result gives it up.
func joinEnd(ctx context.Context, duty *ledger.Duty, result any, err error) error {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	return errors.Join(err, duty.End(last, result))
}
