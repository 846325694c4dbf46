package main

import (
	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

type cancelCommand struct{ targets }

func (c *cancelCommand) Run(t *terminal) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.with(func(p *client.Client) error {
		if len(c.IDs) == 0 {
			return c.startJob(t, p, delivery.JobCommand{Kind: delivery.JobCancel, Filter: c.filter.get(), Rate: c.Rate, Warrant: c.warrant.get()})
		}
		return c.each(t, p, func(ids []delivery.ID) (*delivery.CommandReport, error) {
			return p.Cancel(t.ctx, delivery.CancelCommand{IDs: ids, Warrant: c.warrant.get()})
		})
	})
}

type settleCommand struct {
	server
	IDs    []string `arg:"" help:"Held deliveries, or with --tenant the ids that the requests had."`
	As     string   `enum:"sent,failed" required:"" help:"What you have found out: sent (they arrived) or failed (they did not)."`
	Tenant string   `short:"t" help:"Tenant of the requests."`
	warrant
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *settleCommand) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		named := targets{IDs: c.IDs, filter: filter{Tenant: c.Tenant}, JSON: c.JSON}
		return named.each(t, p, func(ids []delivery.ID) (*delivery.CommandReport, error) {
			return p.Settle(t.ctx, delivery.SettleCommand{IDs: ids, As: delivery.State(c.As), Warrant: c.warrant.get()})
		})
	})
}
