package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// scope is what pause and resume are about.
type scope struct {
	server
	Scope string `arg:"" enum:"lane,tenant,channel" help:"lane, tenant or channel."`
	Name  string `arg:"" help:"Its name; of a lane the key, as the list of lanes shows it."`
	warrant
}

func (c scope) command() delivery.PauseCommand {
	return delivery.PauseCommand{Scope: c.Scope, Name: c.Name, Warrant: c.get()}
}

type pauseCommand struct {
	scope
	For time.Duration `help:"How long, such as 1h. Without it: until it is resumed."`
}

func (c *pauseCommand) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		command := c.command()
		command.For = delivery.Duration(c.For)
		if err := p.Pause(t.ctx, command); err != nil {
			return err
		}
		end := "until it is resumed"
		if c.For > 0 {
			end = "for " + c.For.String()
		}
		_, err := fmt.Fprintf(t.out, "%s %s is paused %s: what arrives for it is kept, what is being sent ends.\nEnd it with `posthouse resume %s '%s' --why ..`.\n",
			c.Scope, c.Name, end, c.Scope, c.Name)
		return err
	})
}

type resumeCommand struct{ scope }

func (c *resumeCommand) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		done, err := p.Resume(t.ctx, c.command())
		if err != nil {
			return err
		}
		if !done {
			_, err = fmt.Fprintf(t.out, "%s %s was not paused; `posthouse pauses` and `posthouse lanes --trouble` show what is.\n", c.Scope, c.Name)
			return err
		}
		_, err = fmt.Fprintf(t.out, "%s %s is resumed: what was kept is sent now.\n", c.Scope, c.Name)
		return err
	})
}

type pausesCommand struct {
	server
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *pausesCommand) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		pauses, err := p.Pauses(t.ctx)
		if err != nil || c.JSON {
			return orJSON(t.out, pauses, err)
		}
		if len(pauses) == 0 {
			_, err = fmt.Fprintln(t.out, "No tenant and no channel is paused; lanes that are: `posthouse lanes --trouble`.")
			return err
		}
		w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "SCOPE\tNAME\tSINCE\tUNTIL\tBY\tWHY")
		for _, one := range pauses {
			end := "resumed"
			if one.Until != nil {
				end = one.Until.UTC().Format(time.RFC3339)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", one.Scope, one.Name, one.Since.UTC().Format(time.RFC3339), end, one.By, one.Why)
		}
		return w.Flush()
	})
}
