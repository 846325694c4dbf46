package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// journey is what became of one scene, in the form of --json.
type journey struct {
	ID       string           `json:"id"`
	Request  string           `json:"request"`
	Title    string           `json:"title"`
	Channel  delivery.Channel `json:"channel"`
	State    delivery.State   `json:"state"`
	Attempts int              `json:"attempts"`
	Events   []string         `json:"events"` // states, by version
	Letter   string           `json:"dead_letter,omitempty"`
	Answer   string           `json:"answer,omitempty"`
	Fault    string           `json:"fault,omitempty"` // what differs from the promise
}

// report prints the journeys and returns an error when a promise was broken.
func (d *demo) report(ctx context.Context, c *client.Client, scenes []scene) error {
	letters, err := c.DeadLetters(ctx, delivery.LetterFilter{Tenant: demoTenant})
	if err != nil {
		return err
	}
	var journeys []journey
	var faults []error
	for _, s := range scenes {
		if s.repeat || s.poison != "" {
			continue
		}
		j := d.journey(ctx, c, s)
		if j.Fault != "" {
			faults = append(faults, fmt.Errorf("%s: %s", s.id, j.Fault))
		}
		journeys = append(journeys, j)
	}
	faults = append(faults, d.checkPoison(scenes, letters)...)
	faults = append(faults, d.checkSink()...)
	if d.json {
		for _, j := range journeys {
			if err := json.NewEncoder(d.t.out).Encode(j); err != nil {
				return err
			}
		}
	} else {
		d.table(journeys, letters)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("the demo differs from what it promised:\n%w", err)
	}
	d.say("\nEvery promise was kept: nothing was lost, nothing was sent twice.\n")
	return nil
}

// journey compares one scene with its events and its status.
func (d *demo) journey(ctx context.Context, c *client.Client, s scene) journey {
	j := journey{Request: s.id, Title: s.title, Channel: delivery.Mail}
	status, err := c.Status(ctx, s.id, demoTenant)
	if err != nil {
		j.Fault = err.Error()
		return j
	}
	j.ID, j.State, j.Attempts = status.ID.String(), status.State, status.Attempts
	d.mu.Lock()
	defer d.mu.Unlock()
	byVersion := make(map[int]*delivery.Event)
	for _, ev := range d.events[s.id] {
		byVersion[ev.Version] = ev
	}
	var wrong []string
	for v := 1; v <= status.Version; v++ {
		ev := byVersion[v]
		if ev == nil {
			wrong = append(wrong, fmt.Sprintf("the event of version %d was not seen", v))
			continue
		}
		j.Events = append(j.Events, string(ev.State))
		if ev.Answer != nil {
			j.Answer = strings.TrimSpace(ev.Answer.Code + " " + ev.Answer.Enhanced + " " + ev.Answer.Text)
		}
	}
	if j.State != s.state {
		wrong = append(wrong, fmt.Sprintf("it is %s, promised was %s", j.State, s.state))
	}
	if s.attempts >= 0 && j.Attempts != s.attempts {
		wrong = append(wrong, fmt.Sprintf("it took %d attempts, promised were %d", j.Attempts, s.attempts))
	}
	j.Letter = d.alerts[delivery.EventID(status.ID, status.Version)]
	if (j.Letter != "") != (s.state != delivery.Sent) {
		wrong = append(wrong, fmt.Sprintf("dead letter: %q", j.Letter))
	}
	j.Fault = strings.Join(wrong, "; ")
	return j
}

// checkPoison compares the poison letters with the scenes that made them.
func (d *demo) checkPoison(scenes []scene, letters []delivery.Letter) (faults []error) {
	want := make(map[string]int)
	for _, s := range scenes {
		if s.poison != "" {
			want[s.poison]++
		}
	}
	for _, l := range letters {
		if l.Source == string(streams.Poison) {
			want[l.Code]--
		}
	}
	for code, n := range want {
		if n != 0 {
			faults = append(faults, fmt.Errorf("%d poison letters too few with code %s", n, code))
		}
	}
	return faults
}

// checkSink asks the other side: no message twice.
func (d *demo) checkSink() (faults []error) {
	count := make(map[string]int)
	for _, e := range d.sink.Entries() {
		if count[e.MessageID]++; count[e.MessageID] == 2 {
			faults = append(faults, fmt.Errorf("the mail server has accepted %s twice", e.MessageID))
		}
	}
	return faults
}

func (d *demo) table(journeys []journey, letters []delivery.Letter) {
	w := tabwriter.NewWriter(d.t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "REQUEST\tWHAT\tSTATE\tATTEMPTS\tEVENTS\tLAST ANSWER")
	for _, j := range journeys {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%.60s\n", j.Request, j.Title, j.State, j.Attempts, strings.Join(j.Events, " > "), j.Answer)
	}
	_ = w.Flush()
	d.say("\nDead letters (posthouse dlq list):\n")
	w = tabwriter.NewWriter(d.t.out, 0, 0, 2, ' ', 0)
	for _, l := range letters {
		fmt.Fprintf(w, "  %s\t%s\t%s\t%.90s\n", l.Source, firstOf(l.RequestID, "(unreadable)"), l.Code, l.Reason)
	}
	_ = w.Flush()
	d.say("The mail server accepted %d mails.\n", d.sink.Count())
}

func unmarshal(body []byte, v any) error { return json.Unmarshal(body, v) }
