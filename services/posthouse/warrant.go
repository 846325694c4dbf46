package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// warrant says who orders something and why; the audit keeps it.
type warrant struct {
	By  string `env:"USER" help:"Who orders it; the audit keeps it."`
	Why string `help:"Why, in a few words; the audit keeps it."`
}

func (w warrant) get() delivery.Warrant { return delivery.Warrant{By: w.By, Why: w.Why} }

// errSkipped is the end of a command that has left something alone that is not
// already as it was to become.
var errSkipped = errors.New("some were left alone, as said above")

// filter says which deliveries a job is for.
type filter struct {
	Tenant   string    `short:"t" help:"Only this tenant; with ids: the tenant whose request ids they are."`
	Channel  string    `help:"Only this channel."`
	State    []string  `help:"Only these states."`
	Code     string    `help:"Only where the last answer had this code, such as 550 or CONFIG_NOT_RESOLVABLE."`
	Category string    `help:"Only where the last answer was of this category, such as CONFIG."`
	From     time.Time `help:"Only what was accepted since then, such as 2026-01-31T08:00:00Z."`
	To       time.Time `help:"Only what was accepted before then."`
	Prefix   string    `name:"request-prefix" help:"Only where the request's id begins so."`
	All      bool      `help:"Everything, without a filter."`
}

func (f filter) get() delivery.JobFilter {
	out := delivery.JobFilter{Tenant: f.Tenant, Channel: delivery.Channel(f.Channel), Code: f.Code, Category: delivery.Category(f.Category), RequestID: f.Prefix}
	for _, s := range f.State {
		out.States = append(out.States, delivery.State(s))
	}
	if !f.From.IsZero() {
		out.AcceptedFrom = &f.From
	}
	if !f.To.IsZero() {
		out.AcceptedTo = &f.To
	}
	return out
}

// narrows tells whether it says more than the tenant.
func (f filter) narrows() bool {
	return f.Channel != "" || len(f.State) > 0 || f.Code != "" || f.Category != "" || !f.From.IsZero() || !f.To.IsZero() || f.Prefix != ""
}

// targets is what a command is for: deliveries by their ids, or a job over all
// that a filter finds.
type targets struct {
	server
	IDs []string `arg:"" optional:"" help:"Deliveries, or with --tenant the ids that the requests had. None: all that the filter finds."`
	filter
	warrant
	DryRun bool `name:"dry-run" help:"With a filter: only count."`
	Rate   int  `default:"100" help:"With a filter: deliveries per second."`
	JSON   bool `name:"json" help:"Print JSON."`
}

// check finds what cannot be meant.
func (c targets) check() error {
	switch {
	case len(c.IDs) > 0 && (c.narrows() || c.All || c.DryRun):
		return errors.New("give ids or a filter, not both")
	case len(c.IDs) == 0 && !c.narrows() && c.Tenant == "" && !c.All:
		return errors.New("say which: ids, a filter such as --tenant, --state or --code, or --all")
	}
	return nil
}

// resolve turns what the command line names into delivery ids.
func (c targets) resolve(t *terminal, p *client.Client) ([]delivery.ID, error) {
	ids := make([]delivery.ID, len(c.IDs))
	for i, name := range c.IDs {
		if c.Tenant != "" {
			s, err := p.Status(t.ctx, name, c.Tenant)
			if err != nil {
				return nil, err
			}
			ids[i] = s.ID
			continue
		}
		id, err := delivery.ParseID(name)
		if err != nil {
			return nil, fmt.Errorf("%w (a request's own id is found with --tenant only)", err)
		}
		ids[i] = id
	}
	return ids, nil
}

// report prints what a command did to each delivery.
func report(t *terminal, asJSON bool, r *delivery.CommandReport) error {
	if asJSON {
		if err := printJSON(t.out, r); err != nil {
			return err
		}
	} else {
		w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		for _, one := range r.Results {
			fmt.Fprintf(w, "%s\t%s\t%s\n", one.ID, one.Effect, one.Hint)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, one := range r.Results {
		if !one.Effect.Done() && one.Effect != delivery.EffectDue {
			return errSkipped
		}
	}
	return nil
}

// startJob counts what the filter finds, and starts the job unless counting was all.
func (c targets) startJob(t *terminal, p *client.Client, command delivery.JobCommand) error {
	count, err := p.CountJob(t.ctx, command)
	if err != nil {
		return err
	}
	if c.DryRun && c.JSON {
		return printJSON(t.out, count)
	}
	more := ""
	if !count.Complete {
		more = " or more"
	}
	fmt.Fprintf(t.err, "%d%s found\n", count.Count, more)
	if c.DryRun {
		return nil
	}
	job, err := p.StartJob(t.ctx, command)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(t.out, job)
	}
	_, err = fmt.Fprintf(t.out, "%s\n", job.ID)
	fmt.Fprintf(t.err, "started; follow it with `posthouse jobs show %s`\n", job.ID)
	return err
}

func printJobs(w io.Writer, jobs []delivery.Job) error {
	tab := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tab, "JOB\tKIND\tSTATE\tFOUND\tDONE\tSKIPPED\tFAILED\tRATE\tBY\tWHY")
	for _, j := range jobs {
		fmt.Fprintf(tab, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d/s\t%s\t%s\n", j.ID, j.Kind, j.State, j.Total.Count, j.Done, j.Skipped, j.Failed, j.Rate, j.By, j.Why)
	}
	return tab.Flush()
}
