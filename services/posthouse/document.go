package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/document"
)

type documentCommand struct {
	Status   documentStatus   `cmd:"" help:"Tell where a document is, and what holds it."`
	Replay   documentReplay   `cmd:"" help:"Forward a document again, whatever became of it."`
	Reverify documentReverify `cmd:"" help:"Ask the verifiers again, and forward the document if they pass it."`
	MLS      documentMLS      `cmd:"" name:"mls" help:"Answer the sender's access point, in the backend's place."`
	C4       documentC4       `cmd:"" name:"c4" help:"Tell the country of the receiver."`
}

// received is how a command names one document.
type received struct {
	server
	ID     string `arg:"" help:"SBDH instance id (the newest document that has it), or the document's own id."`
	Tenant string `short:"t" help:"Only a document of this tenant."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// show prints the document as a command has left it.
func (c received) show(t *terminal, do func(*client.Client) (*document.Status, error)) error {
	return c.with(func(p *client.Client) error {
		s, err := do(p)
		switch {
		case err != nil:
			return err
		case c.JSON:
			return printJSON(t.out, s)
		}
		return printDocument(t.out, s)
	})
}

type documentStatus struct{ received }

func (c *documentStatus) Run(t *terminal) error {
	return c.show(t, func(p *client.Client) (*document.Status, error) { return p.Document(t.ctx, c.ID, c.Tenant) })
}

type documentReplay struct {
	received
	warrant
}

func (c *documentReplay) Run(t *terminal) error {
	return c.show(t, func(p *client.Client) (*document.Status, error) {
		return p.ReplayDocument(t.ctx, document.Command{Warrant: c.get(), ID: c.ID, Tenant: c.Tenant})
	})
}

type documentReverify struct {
	received
	warrant
}

func (c *documentReverify) Run(t *terminal) error {
	return c.show(t, func(p *client.Client) (*document.Status, error) {
		return p.ReverifyDocument(t.ctx, document.Command{Warrant: c.get(), ID: c.ID, Tenant: c.Tenant})
	})
}

type documentMLS struct {
	received
	Code  string   `required:"" enum:"AP,AB,RE" help:"AP (delivered), AB (taken), RE (rejected)."`
	Text  string   `help:"For a person."`
	Issue []string `sep:"none" help:"code|field|text, such as 'FD|NA|no such department'; with RE at least one of SV, BV, FD, else BW only. May be repeated."`
}

func (c *documentMLS) Run(t *terminal) error {
	command := document.MLSCommand{ID: c.ID, Tenant: c.Tenant, Code: document.Code(c.Code), Text: c.Text}
	for _, issue := range c.Issue {
		parts := strings.SplitN(issue, "|", 3)
		if len(parts) != 3 {
			return fmt.Errorf("--issue %q is not code|field|text", issue)
		}
		command.Issues = append(command.Issues, document.MLSIssue{Reason: document.Severity(parts[0]), Field: parts[1], Text: parts[2]})
	}
	return c.with(func(p *client.Client) error {
		a, err := p.SendMLS(t.ctx, command)
		if err != nil || c.JSON {
			return orJSON(t.out, a, err)
		}
		if a.Status == string(document.ReplyRecorded) {
			_, err = fmt.Fprintln(t.out, "Recorded: the sender wants to hear of failures only.")
			return err
		}
		_, err = fmt.Fprintf(t.out, "Accepted as a delivery: follow it with `posthouse status %s`.\n", a.Document.MLS.Delivery)
		return err
	})
}

type documentC4 struct {
	received
	Country string `arg:"" help:"Two capital letters of ISO 3166-1."`
}

func (c *documentC4) Run(t *terminal) error {
	return c.show(t, func(p *client.Client) (*document.Status, error) {
		return p.ReportC4(t.ctx, document.C4Report{ID: c.ID, Tenant: c.Tenant, Country: c.Country})
	})
}

func printDocument(out io.Writer, s *document.Status) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "document\t%s, %s of %s\nsbdh\t%s\nas4\t%s\nfrom\t%s\nto\t%s\n", s.ID, s.Kind, s.Tenant, s.SBDHInstanceID, s.AS4MessageID, s.SenderID, s.ReceiverID)
	fmt.Fprintf(w, "state\t%s\nattempts\t%d\n", s.State, s.Attempts)
	if s.Duplicate != "" {
		fmt.Fprintf(w, "repeats\tits %s id was seen before\n", s.Duplicate)
	}
	if s.Verdict != document.VerdictNone {
		fmt.Fprintf(w, "verdict\t%s\n", s.Verdict)
	}
	var issues []document.Issue
	if len(s.Issues) > 0 {
		if err := json.Unmarshal(s.Issues, &issues); err != nil {
			return fmt.Errorf("issues of document %s: %w", s.ID, err)
		}
	}
	for _, i := range issues {
		fmt.Fprintf(w, "issue\t%s %s %s %s\n", i.Severity, i.Code, i.Location, i.Text)
	}
	fmt.Fprintf(w, "country of C4\t%s\nMLS\t%s\n", orDash(s.C4Country), answerOf(s.MLS))
	for _, step := range s.Journey {
		fmt.Fprintf(w, "%s\tversion %d: %s\n", step.At.UTC().Format(time.RFC3339), step.Version, step.State)
	}
	for _, a := range s.Tried {
		fmt.Fprintf(w, "attempt %d\t%s %s\n", a.Number, a.Verdict, a.Answer)
	}
	fmt.Fprintf(w, "gate\t%s%s, since %s; released by: %s\n", s.Gate.Name, untilWhen(s.Gate.Until), s.Gate.Why, s.Gate.Release)
	return w.Flush()
}

// answerOf tells how far the answer to C2 has got.
func answerOf(m document.MLS) string {
	text := orDash(strings.ReplaceAll(string(m.Status), "_", " "))
	if m.Code != "" {
		text = string(m.Code) + ", " + text
	}
	if m.Status == document.MLSClaimed || m.Status == document.MLSSent || m.Status == document.MLSUndeliverable {
		text += ", delivery " + m.Delivery.String()
	}
	return text
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
