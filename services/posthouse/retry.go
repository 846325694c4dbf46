package main

import (
	"slices"
	"time"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

type retryCommand struct {
	targets
	ExpiresAt time.Time `name:"expires-at" help:"A new time after which they are not to be sent."`
	NoExpiry  bool      `name:"no-expiry" help:"Take their expires_at away."`
}

func (c *retryCommand) Run(t *terminal) error {
	if err := c.check(); err != nil {
		return err
	}
	expiry := delivery.Expiry{NoExpiry: c.NoExpiry}
	if !c.ExpiresAt.IsZero() {
		expiry.ExpiresAt = &c.ExpiresAt
	}
	return c.with(func(p *client.Client) error {
		if len(c.IDs) == 0 {
			return c.startJob(t, p, delivery.JobCommand{Kind: delivery.JobRetry, Filter: c.filter.get(), Rate: c.Rate, Warrant: c.warrant.get(), Expiry: expiry})
		}
		return c.each(t, p, func(ids []delivery.ID) (*delivery.CommandReport, error) {
			return p.Retry(t.ctx, delivery.RetryCommand{IDs: ids, Warrant: c.warrant.get(), Expiry: expiry})
		})
	})
}

// each resolves the ids and does as many calls as they need.
func (c targets) each(t *terminal, p *client.Client, do func([]delivery.ID) (*delivery.CommandReport, error)) error {
	ids, err := c.resolve(t, p)
	if err != nil {
		return err
	}
	var all delivery.CommandReport
	for part := range slices.Chunk(ids, delivery.MaxCommandIDs) {
		r, err := do(part)
		if err != nil {
			return err
		}
		all.Done, all.Skipped, all.Results = all.Done+r.Done, all.Skipped+r.Skipped, append(all.Results, r.Results...)
	}
	return report(t, c.JSON, &all)
}
