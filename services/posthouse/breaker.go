package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

type breakerCommand struct {
	List  breakerList  `cmd:"" default:"withargs" help:"List the breakers of all lanes."`
	Open  breakerOpen  `cmd:"" help:"Stop a lane for a while, such as for maintenance on the other side."`
	Reset breakerReset `cmd:"" help:"Let a lane go on at once, and forget its failures and caps."`
}

type breakerList struct {
	server
	Instances bool `help:"What each running sender has counted, and where it differs from the lane."`
	JSON      bool `name:"json" help:"Print JSON."`
}

func (c *breakerList) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		if c.Instances {
			return c.instances(t, p)
		}
		lanes, err := p.Lanes(t.ctx, delivery.LaneFilter{})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(t.out, lanes)
		}
		return printBreakers(t.out, lanes)
	})
}

func (c *breakerList) instances(t *terminal, p *client.Client) error {
	list, err := p.InstanceBreakers(t.ctx)
	switch {
	case err != nil:
		return err
	case c.JSON:
		return printJSON(t.out, list)
	case len(list) == 0:
		_, err = fmt.Fprintln(t.out, "No sender has counted a failure, and none differs from the lanes (`posthouse breaker list`).")
		return err
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LANE\tINSTANCE\tTHERE\tFOR ALL\tFAILURES\tLAST CAUSE")
	for _, b := range list {
		state := b.State
		if b.Unsaved {
			state += ", not stored yet"
		}
		fmt.Fprintf(w, "%s\t%s\t%s%s\t%s\t%d\t%s\n", b.Key, b.Instance, state, untilWhen(b.Until), strings.ReplaceAll(b.Row, "_", " "), b.Failures, b.Cause)
	}
	return w.Flush()
}

type breakerOpen struct {
	server
	Key string        `arg:"" help:"Lane, as the list names it."`
	For time.Duration `required:"" help:"How long, such as 30m; then a few sends probe it."`
	warrant
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *breakerOpen) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		l, err := p.OpenBreaker(t.ctx, delivery.LaneCommand{Key: c.Key, For: delivery.Duration(c.For), Warrant: c.get()})
		if err != nil || c.JSON {
			return orJSON(t.out, l, err)
		}
		_, err = fmt.Fprintf(t.out, "%s is open%s: nothing is sent there, what arrives for it is kept.\nEnd it before then with `posthouse breaker reset '%s' --why ..`.\n",
			l.Key, untilWhen(l.OpenUntil), l.Key)
		return err
	})
}

type breakerReset struct {
	server
	Key string `arg:"" help:"Lane, as the list names it."`
	warrant
	JSON bool `name:"json" help:"Print JSON."`
}

func (c *breakerReset) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		l, err := p.ResetBreaker(t.ctx, delivery.LaneCommand{Key: c.Key, Warrant: c.get()})
		if err != nil || c.JSON {
			return orJSON(t.out, l, err)
		}
		if l.Paused {
			_, err = fmt.Fprintf(t.out, "%s is closed, but paused: it goes on after `posthouse resume lane '%s' --why ..`.\n", l.Key, l.Key)
			return err
		}
		_, err = fmt.Fprintf(t.out, "%s is closed: what waits for it is sent now, unless its tenant or channel is paused (`posthouse pauses`).\n", l.Key)
		return err
	})
}

// orJSON prints an answer as JSON, or gives the error back.
func orJSON(out io.Writer, v any, err error) error {
	if err != nil {
		return err
	}
	return printJSON(out, v)
}

func printBreakers(out io.Writer, lanes []delivery.LaneStatus) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LANE\tSTATE\tOPEN SINCE\tREMAINING\tFAILURES\tLAST CAUSE")
	for _, l := range lanes {
		since, remaining := "-", "-"
		if l.OpenedAt != nil {
			since = l.OpenedAt.UTC().Format(time.RFC3339)
		}
		if l.OpenUntil != nil {
			remaining = (time.Duration(l.Remaining) * time.Second).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\n", l.Key, breakerState(l), since, remaining, l.Failures, l.Cause)
	}
	return w.Flush()
}
