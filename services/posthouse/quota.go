package main

import (
	"fmt"
	"text/tabwriter"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

type quotaCommand struct {
	List   quotaList   `cmd:"" default:"withargs" help:"List the monthly quotas that were set."`
	Set    quotaSet    `cmd:"" help:"Set a monthly quota. It works at once."`
	Remove quotaRemove `cmd:"" help:"Take a quota away: the default of the configuration holds again, or none."`
	Usage  quotaUsage  `cmd:"" help:"What was used of each month, newest first."`
}

type quotaList struct {
	server
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *quotaList) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		quotas, err := p.Quotas(t.ctx, delivery.QuotaFilter{})
		if err != nil || c.JSON {
			return orJSON(t.out, quotas, err)
		}
		if len(quotas) == 0 {
			_, err = fmt.Fprintln(t.out, "No quota is set; the defaults of the configuration hold (QUOTA_MAIL_MONTHLY_DEFAULT), or none.")
			return err
		}
		w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "BUCKET\tCHANNEL\tMONTHLY\tTHEN\tZONE")
		for _, q := range quotas {
			monthly := "default"
			if q.Monthly != nil {
				monthly = fmt.Sprint(*q.Monthly)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", q.Bucket, q.Channel, monthly, usedUp(q.Hold), q.Zone)
		}
		return w.Flush()
	})
}

// usedUp is what becomes of what exceeds a quota.
func usedUp(hold bool) string {
	if hold {
		return "waits"
	}
	return "fails"
}

// bucket is whose quota a command changes.
type bucket struct {
	server
	Bucket  string `arg:"" name:"tenant" help:"Tenant; _platform for what the platform sends on its own behalf."`
	Channel string `required:"" enum:"mail,sms" help:"mail or sms."`
	warrant
	JSON bool `name:"json" help:"Print JSON."`
}

type quotaSet struct {
	bucket
	Monthly int64  `required:"" help:"So many a month, at most."`
	Hold    bool   `help:"What exceeds it waits for the next month or a higher quota. Without it: it fails."`
	Zone    string `help:"Time zone in which its months begin, such as Europe/Vienna. Without it: UTC."`
}

func (c *quotaSet) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		q, err := p.SetQuota(t.ctx, delivery.QuotaCommand{Bucket: c.Bucket, Channel: c.Channel, Monthly: &c.Monthly, Hold: c.Hold, Zone: c.Zone, Warrant: c.get()})
		if err != nil || c.JSON {
			return orJSON(t.out, q, err)
		}
		if q == nil || q.Monthly == nil {
			return fmt.Errorf("the quota of %s has been removed meanwhile: set it again if that is not meant", c.Bucket)
		}
		_, err = fmt.Fprintf(t.out, "%s may send %d %s a month (%s); what exceeds that %s. What waited for its quota tries again now.\nSee `posthouse quota usage %s`.\n",
			q.Bucket, *q.Monthly, q.Channel, q.Zone, usedUp(q.Hold), q.Bucket)
		return err
	})
}

type quotaRemove struct{ bucket }

func (c *quotaRemove) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		q, err := p.SetQuota(t.ctx, delivery.QuotaCommand{Bucket: c.Bucket, Channel: c.Channel, Remove: true, Warrant: c.get()})
		if err != nil || c.JSON {
			return orJSON(t.out, q, err)
		}
		_, err = fmt.Fprintf(t.out, "%s has no quota of its own for %s: the default of the configuration holds, or none. What waited for it tries again now.\n", c.Bucket, c.Channel)
		return err
	})
}

type quotaUsage struct {
	server
	Bucket string `arg:"" optional:"" name:"tenant" help:"Only this tenant; _platform for the platform's own."`
	Month  string `help:"Only this month, such as 2026-11."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

func (c *quotaUsage) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		usage, err := p.QuotaUsage(t.ctx, delivery.QuotaFilter{Bucket: c.Bucket, Month: c.Month})
		if err != nil || c.JSON {
			return orJSON(t.out, usage, err)
		}
		if len(usage) == 0 {
			_, err = fmt.Fprintln(t.out, none(c.Bucket != "" || c.Month != "", "Nothing was sent that this asks for.", "Nothing was sent yet."))
			return err
		}
		w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "BUCKET\tCHANNEL\tMONTH\tUSED\tOF\tPERCENT\tTHEN")
		for _, u := range usage {
			of, percent, then := "no limit", "-", "-"
			if u.Ceiling != nil {
				of, percent, then = fmt.Sprint(*u.Ceiling), share(u.Used, *u.Ceiling), usedUp(u.Hold)
				if u.Default {
					of += " (default)"
				}
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\t%s\n", u.Bucket, u.Channel, u.Month, u.Used, of, percent, then)
		}
		return w.Flush()
	})
}

// share is a part of a ceiling in per cent; of a ceiling of 0 all is used.
func share(used, ceiling int64) string {
	if ceiling == 0 {
		return "100"
	}
	return fmt.Sprintf("%.0f", 100*float64(used)/float64(ceiling))
}
