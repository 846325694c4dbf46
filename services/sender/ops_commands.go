package sender

import (
	"context"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/quota"
)

// operator carries out commands: the book moves, then the events go out and the
// senders hear of the work.
type operator struct {
	book   *ledger.Ledger
	lanes  *lane.Lanes
	quotas *quota.Quotas
	hand   func(outbox.Batch)
	tell   func([]claim.Group)
	wake   func() // every sender looks at the queue now: a lane, a tenant or a quota is free again

	instance string
	breakers *breaker.Set
	forget   func(key string) // wake, and every sender forgets what it has counted of a lane
}

// after hands on what a command has written; some of it may stand although a
// later page failed.
func (o *operator) after(done ledger.Carried, err error) (any, error) {
	for _, events := range done.Events {
		o.hand(events)
	}
	o.tell(done.Groups)
	if err != nil {
		return nil, err
	}
	return done.CommandReport, nil
}

func (o *operator) retry(ctx context.Context, req bus.Request) (any, error) {
	var c delivery.RetryCommand
	if err := req.Decode(&c); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, refuse(err)
	}
	return o.after(o.book.Retry(ctx, c))
}

func (o *operator) cancel(ctx context.Context, req bus.Request) (any, error) {
	var c delivery.CancelCommand
	if err := req.Decode(&c); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, refuse(err)
	}
	return o.after(o.book.CancelAll(ctx, c))
}

func (o *operator) settle(ctx context.Context, req bus.Request) (any, error) {
	var c delivery.SettleCommand
	if err := req.Decode(&c); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, refuse(err)
	}
	return o.after(o.book.SettleHeld(ctx, c))
}

func (o *operator) audit(ctx context.Context, req bus.Request) (any, error) {
	var f delivery.AuditFilter
	if err := req.Decode(&f); err != nil {
		return nil, err
	}
	return o.book.Audit(ctx, f)
}
