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

type lanesCommand struct {
	server
	Key     string `arg:"" optional:"" help:"Only this lane."`
	Trouble bool   `help:"Only those that do not go as fast as they could: shut, slowed, used up, paused."`
	JSON    bool   `name:"json" help:"Print JSON."`
}

func (c *lanesCommand) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		lanes, err := p.Lanes(t.ctx, delivery.LaneFilter{Key: c.Key, Trouble: c.Trouble})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(t.out, lanes)
		}
		if len(lanes) == 0 {
			_, err = fmt.Fprintln(t.out, none(c.Trouble, "No lane is in trouble.", "There is no lane yet: a sender makes the first one."))
			return err
		}
		return printLanes(t.out, lanes)
	})
}

func none(narrowed bool, narrow, wide string) string {
	if narrowed {
		return narrow
	}
	return wide
}

func printLanes(out io.Writer, lanes []delivery.LaneStatus) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "LANE\tSTATE\tIN WORK\tWAITS\tPER MINUTE\tTODAY\tWHY")
	for _, l := range lanes {
		waits := "no"
		if l.Ready {
			waits = "yes"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.Key, laneState(l), most(l.InFlight, least(l.Cap, l.MaxInFlight)), waits,
			dash(least(l.RateCap, l.RateLimit)), dailyUse(l), laneWhy(l))
	}
	return w.Flush()
}

// laneState is the first thing in the way of a lane, in the order in which they apply.
func laneState(l delivery.LaneStatus) string {
	switch {
	case l.Paused:
		return "paused"
	case l.Breaker != "closed":
		return breakerState(l)
	case l.FullUntil != nil:
		return "full"
	case l.Cap > 0 || l.RateCap > 0:
		return "slowed"
	}
	return "clear"
}

func breakerState(l delivery.LaneStatus) string {
	state := strings.ReplaceAll(l.Breaker, "_", " ")
	if l.Forced {
		state += ", by hand"
	}
	return state
}

func laneWhy(l delivery.LaneStatus) string {
	switch {
	case l.Paused:
		return l.PausedWhy + untilWhen(l.PausedUntil)
	case l.Breaker != "closed" && l.Forced: // the cause is the operator's reason then
		return l.Cause + untilWhen(l.OpenUntil)
	case l.Breaker != "closed":
		return l.Message
	case l.FullUntil != nil:
		return "its limit is used up" + untilWhen(l.FullUntil)
	}
	return l.CapReason
}

// untilWhen is the end of something that may have none.
func untilWhen(end *time.Time) string {
	if end == nil {
		return ""
	}
	return ", until " + end.UTC().Format(time.RFC3339)
}

// least is the lower of two limits, where 0 is none.
func least(a, b int) int {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func most(n, limit int) string {
	if limit == 0 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d of %d", n, limit)
}

func dash(n int) string {
	if n == 0 {
		return "-"
	}
	return fmt.Sprint(n)
}

func dailyUse(l delivery.LaneStatus) string {
	if l.DailyLimit == 0 {
		return "-"
	}
	return most(l.DayUsed, l.DailyLimit)
}
