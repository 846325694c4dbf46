package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

type auditCommand struct {
	List auditList `cmd:"" default:"withargs" help:"What operators have done, newest first."`
}

type auditList struct {
	server
	By     string `help:"Only by this person."`
	Action string `help:"Only this action, such as retry or job.start."`
	Target string `help:"Only of this delivery (also by jobs), job or letter."`
	Before string `help:"Entries before this one: the last of the page before."`
	Limit  int    `default:"50" help:"At most so many."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

func (c *auditList) Run(t *terminal) error {
	f := delivery.AuditFilter{By: c.By, Action: c.Action, Target: c.Target, Limit: c.Limit}
	if c.Before != "" {
		before, err := delivery.ParseID(c.Before)
		if err != nil {
			return err
		}
		f.Before = &before
	}
	return c.with(func(p *client.Client) error {
		entries, err := p.Audit(t.ctx, f)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(t.out, entries)
		}
		w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "AT\tBY\tACTION\tTARGET\tRESULT\tWHY")
		for _, e := range entries {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", e.At.Format(time.RFC3339), e.By, e.Action, e.Target, e.Result, e.Why)
		}
		return w.Flush()
	})
}

// dlqTriage is what resolve and discard share.
type dlqTriage struct {
	server
	IDs    []string `arg:"" help:"Letters, as the list names them."`
	By     string   `env:"USER" help:"Who does it; the audit keeps it."`
	Remark string   `required:"" help:"What was found or done; it stays with the letter."`
	JSON   bool     `name:"json" help:"Print JSON."`
}

func (c dlqTriage) mark(t *terminal, as string) error {
	return c.with(func(p *client.Client) error {
		r, err := p.Triage(t.ctx, delivery.TriageCommand{EventIDs: c.IDs, As: as, Warrant: delivery.Warrant{By: c.By, Why: c.Remark}})
		if err != nil {
			return err
		}
		if c.JSON {
			err = printJSON(t.out, r)
		}
		for _, one := range r.Results {
			if !c.JSON {
				fmt.Fprintf(t.out, "%s  %s\n", one.EventID, one.Triage)
			}
			if one.Triage != as && err == nil {
				err = errSkipped
			}
		}
		return err
	})
}

type dlqResolve struct{ dlqTriage }

func (c *dlqResolve) Run(t *terminal) error { return c.mark(t, "resolved") }

type dlqDiscard struct{ dlqTriage }

func (c *dlqDiscard) Run(t *terminal) error { return c.mark(t, "discarded") }
