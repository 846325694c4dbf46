package client

import (
	"context"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// SetQuota sets or removes a monthly ceiling. It works at once: what waits for it
// tries again. The answer is what is set then, nil after a removal.
func (c *Client) SetQuota(ctx context.Context, command delivery.QuotaCommand) (*delivery.MonthlyQuota, error) {
	all, err := list[delivery.MonthlyQuota](ctx, c, "quota-set", command)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	return &all[0], nil
}

// Quotas lists the ceilings that were set; f.Month stays empty.
func (c *Client) Quotas(ctx context.Context, f delivery.QuotaFilter) ([]delivery.MonthlyQuota, error) {
	return list[delivery.MonthlyQuota](ctx, c, "quotas", f)
}

// QuotaUsage lists what was used of each month, newest first.
func (c *Client) QuotaUsage(ctx context.Context, f delivery.QuotaFilter) ([]delivery.QuotaUsage, error) {
	return list[delivery.QuotaUsage](ctx, c, "usage", f)
}
