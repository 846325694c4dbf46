package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// replayLook is how often a replay's progress is asked for.
const replayLook = 500 * time.Millisecond

type eventsCommand struct {
	Replay  eventsReplay  `cmd:"" help:"Publish events of the book again; a stream that was lost is rebuilt by it."`
	Replays eventsReplays `cmd:"" help:"List replays, newest first."`
	Cancel  eventsCancel  `cmd:"" help:"Stop a replay that runs."`
	Check   eventsCheck   `cmd:"" help:"Tell what the last comparison of the event stream with the book found."`
}

type eventsReplay struct {
	server
	Since  time.Duration `required:"" help:"Begin this far back, such as 2h."`
	Tenant string        `short:"t" help:"Only this tenant."`
	State  string        `help:"Only changes to this state."`
	DryRun bool          `help:"Only count."`
	Detach bool          `help:"Do not wait for the end; the replay goes on by itself anyway."`
	By     string        `help:"Who asks. Default: your user name."`
	JSON   bool          `name:"json" help:"Print JSON."`
}

func (c *eventsReplay) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		by := firstOf(c.By, environment(t.environ)["USER"], fmt.Sprintf("uid %d", os.Getuid()))
		r, err := p.Replay(t.ctx, delivery.ReplayRequest{Since: time.Now().Add(-c.Since), Tenant: c.Tenant, State: c.State, By: by, DryRun: c.DryRun})
		if err != nil {
			return err
		}
		if !c.DryRun && !c.Detach {
			if r, err = c.follow(t, p, r); err != nil {
				return err
			}
		}
		if c.JSON {
			return printJSON(t.out, r)
		}
		if c.DryRun {
			_, err = fmt.Fprintf(t.out, "%s events would be published again; consumers know them by their ids.\n", countOf(r.Total))
			return err
		}
		_, err = fmt.Fprintf(t.out, "Replay %s is %s: %d of %s events published again.\n", r.ID, r.Status, r.Published, countOf(r.Total))
		return err
	})
}

// follow shows the progress until the replay has ended.
func (c *eventsReplay) follow(t *terminal, p *client.Client, r *delivery.Replay) (*delivery.Replay, error) {
	tick := time.NewTicker(replayLook)
	defer tick.Stop()
	said := ""
	for r.Status == "running" {
		line := fmt.Sprintf("replay %s: %d of %s events, up to %s", r.ID, r.Published, countOf(r.Total), r.Reached.UTC().Format(time.RFC3339))
		if r.Fault != "" {
			line += "; it does not move: " + r.Fault
		}
		if line != said {
			fmt.Fprintln(t.err, line)
			said = line
		}
		select {
		case <-t.ctx.Done():
			return nil, fmt.Errorf("the replay goes on; stop it with `posthouse events cancel %s`: %w", r.ID, context.Cause(t.ctx))
		case <-tick.C:
		}
		list, err := p.Replays(t.ctx, r.ID.String())
		if err != nil {
			return nil, err
		}
		r = &list[0]
	}
	return r, nil
}

func countOf(n *int64) string {
	if n == nil {
		return "many"
	}
	return fmt.Sprint(*n)
}

type eventsReplays struct {
	server
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *eventsReplays) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		list, err := p.Replays(t.ctx, "")
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(t.out, list)
		}
		w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tBY\tSTATUS\tSINCE\tREACHED\tPUBLISHED\tOF")
		for _, r := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%s\n", r.ID, r.By, r.Status, r.Since.UTC().Format(time.RFC3339), r.Reached.UTC().Format(time.RFC3339), r.Published, countOf(r.Total))
		}
		return w.Flush()
	})
}

type eventsCancel struct {
	server
	ID string `arg:"" help:"Id of the replay."`
}

func (c *eventsCancel) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		r, err := p.CancelReplay(t.ctx, c.ID)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(t.out, "Replay %s is %s after %d events.\n", r.ID, r.Status, r.Published)
		return err
	})
}

type eventsCheck struct {
	server
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *eventsCheck) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		r, err := p.Reconciliation(t.ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(t.out, r)
		}
		fmt.Fprintf(t.out, "Compared at %s: events from %s to %s.\n%d booked, %d missing in the stream, %d published again, %d still in the outbox, %d repeats, %d that nobody has booked.\n",
			r.FinishedAt.UTC().Format(time.RFC3339), r.From.UTC().Format(time.RFC3339), r.To.UTC().Format(time.RFC3339), r.Booked, r.Missing, r.Repaired, r.Pending, r.Repeats, r.Unknown)
		for _, id := range r.UnknownIDs {
			fmt.Fprintln(t.out, "  not booked:", id)
		}
		return nil
	})
}

type alarmsCommand struct {
	server
	All  bool `help:"Those that are cleared, too."`
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *alarmsCommand) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		list, err := p.Alarms(t.ctx)
		if err != nil {
			return err
		}
		shown := []delivery.Alarm{}
		for _, a := range list {
			if a.Raised || c.All {
				shown = append(shown, a)
			}
		}
		if c.JSON {
			return printJSON(t.out, shown)
		}
		if len(shown) == 0 {
			_, err = fmt.Fprintln(t.out, "No alarm is raised.")
			return err
		}
		w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ALARM\tRAISED\tSINCE\tWHAT")
		for _, a := range shown {
			fmt.Fprintf(w, "%s\t%t\t%s\t%s\n", a.Name, a.Raised, a.ChangedAt.UTC().Format(time.RFC3339), a.Text)
		}
		return w.Flush()
	})
}
