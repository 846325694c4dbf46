package sender

import (
	"context"
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// setQuota sets or removes a ceiling, and answers with what is set then: one quota
// or none.
func (o *operator) setQuota(ctx context.Context, req bus.Request) (any, error) {
	var c delivery.QuotaCommand
	if err := req.Decode(&c); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, refuse(err)
	}
	if err := o.quotas.Put(ctx, c); err != nil {
		return nil, err
	}
	o.wake()
	return o.quotas.List(ctx, delivery.QuotaFilter{Bucket: c.Bucket, Channel: c.Channel})
}

func (o *operator) listQuotas(ctx context.Context, req bus.Request) (any, error) {
	f, err := quotaFilter(req)
	if err != nil {
		return nil, err
	}
	if f.Month != "" {
		return nil, refuse(fmt.Errorf("month: a quota holds for every month; ask for usage"))
	}
	return o.quotas.List(ctx, f)
}

func (o *operator) usage(ctx context.Context, req bus.Request) (any, error) {
	f, err := quotaFilter(req)
	if err != nil {
		return nil, err
	}
	return o.quotas.Usage(ctx, f)
}

func quotaFilter(req bus.Request) (f delivery.QuotaFilter, err error) {
	if err := req.Decode(&f); err != nil {
		return f, err
	}
	if _, err := time.Parse("2006-01", f.Month); f.Month != "" && err != nil {
		return f, refuse(fmt.Errorf("month %.20q is not of the form 2026-11", f.Month))
	}
	if err := named("bucket", f.Bucket); err != nil {
		return f, err
	}
	return f, named("channel", f.Channel)
}
