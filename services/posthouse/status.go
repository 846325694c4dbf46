package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// lookup is how a command names one delivery.
type lookup struct {
	server
	ID     string `arg:"" help:"Delivery id, or with --tenant the id that the request had."`
	Tenant string `short:"t" help:"Tenant of the request."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

func (c lookup) find(t *terminal) (s *delivery.Status, err error) {
	err = c.with(func(p *client.Client) error {
		s, err = p.Status(t.ctx, c.ID, c.Tenant)
		if errors.Is(err, client.ErrNotFound) && c.Tenant == "" {
			return fmt.Errorf("%w (a request's own id is found with --tenant only)", err)
		}
		return err
	})
	return s, err
}

type statusCommand struct{ lookup }

func (c *statusCommand) Run(t *terminal) error {
	s, err := c.find(t)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(t.out, s)
	}
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "delivery\t%s\nrequest\t%s of %s\nchannel\t%s, class %s, lane %s\nstate\t%s\nattempts\t%d (%d retries)\n",
		s.ID, s.RequestID, s.Tenant, s.Channel, s.Class, s.Lane, stateOf(s), s.Attempts, s.Retries)
	for _, step := range s.Journey {
		fmt.Fprintf(w, "%s\tversion %d: %s\n", step.At.Format(time.RFC3339), step.Version, step.State)
	}
	for _, a := range s.Tried {
		fmt.Fprintf(w, "attempt %d\t%s %s\n", a.Number, a.Verdict, a.Answer)
	}
	for _, r := range s.Recipients {
		fmt.Fprintf(w, "recipient %d\t%s %s %s\n", r.Ordinal, r.State, r.Code, r.Text)
	}
	return w.Flush()
}

func stateOf(s *delivery.Status) string {
	if s.InWork {
		return string(s.State) + ", being sent"
	}
	return string(s.State)
}

type explainCommand struct{ lookup }

func (c *explainCommand) Run(t *terminal) error {
	s, err := c.find(t)
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSON(t.out, s.Gate)
	}
	fmt.Fprintf(t.out, "%s is %s.\nGate: %s, since %s.\n", s.ID, stateOf(s), s.Gate.Name, s.Gate.Why)
	if s.Gate.Until != nil {
		fmt.Fprintf(t.out, "Until: %s\n", s.Gate.Until.Format(time.RFC3339))
	}
	_, err = fmt.Fprintf(t.out, "Released by: %s.\n", s.Gate.Release)
	return err
}

type tailCommand struct {
	server
	Tenant string        `short:"t" help:"Only this tenant."`
	State  string        `help:"Only changes to this state."`
	Since  time.Duration `help:"Begin this far back, such as 1h."`
	JSON   bool          `name:"json" help:"Print each event as one line of JSON."`
}

func (c *tailCommand) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		f := client.Filter{State: delivery.State(c.State), Tenant: c.Tenant}
		if c.Since > 0 {
			f.Since = time.Now().Add(-c.Since)
		}
		return p.Watch(t.ctx, f, func(ev *delivery.Event) error {
			if c.JSON {
				return json.NewEncoder(t.out).Encode(ev)
			}
			_, err := fmt.Fprintln(t.out, eventLine(ev))
			return err
		})
	})
}

func eventLine(ev *delivery.Event) string {
	line := fmt.Sprintf("%s  %s v%d  %-9s %s/%s  %s", ev.At.UTC().Format("15:04:05.000"), ev.ID, ev.Version, ev.State, ev.Tenant, ev.Channel, ev.RequestID)
	if ev.Answer != nil && ev.Answer.Code != "" {
		line += fmt.Sprintf("  %s %s %s", ev.Answer.Code, ev.Answer.Enhanced, ev.Answer.Text)
	}
	if ev.DueAt != nil {
		line += "  again at " + ev.DueAt.UTC().Format("15:04:05")
	}
	return line
}

type dlqCommand struct {
	List    dlqList    `cmd:"" help:"List dead letters, newest first."`
	Resolve dlqResolve `cmd:"" help:"Mark letters as resolved. It sends nothing again: that is retry."`
	Discard dlqDiscard `cmd:"" help:"Mark letters as not worth a remedy."`
}

type dlqList struct {
	server
	Tenant string `short:"t" help:"Only this tenant."`
	Source string `help:"Only this source, such as send_exhausted or poison."`
	Open   bool   `help:"Only those that nobody has triaged."`
	Limit  int    `default:"50" help:"At most so many."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

func (c *dlqList) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		letters, err := p.DeadLetters(t.ctx, delivery.LetterFilter{Tenant: c.Tenant, Source: c.Source, OpenOnly: c.Open, Limit: c.Limit})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(t.out, letters)
		}
		w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "LETTER\tARCHIVED\tSOURCE\tTENANT\tREQUEST\tCODE\tTRIAGE\tREASON")
		for _, l := range letters {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.EventID, l.ArchivedAt.Format(time.RFC3339), l.Source, l.Tenant, l.RequestID, l.Code, l.Triage, l.Reason)
		}
		return w.Flush()
	})
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
