package main

import (
	"context"
	"fmt"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

type jobsCommand struct {
	List   jobsList  `cmd:"" default:"withargs" help:"List jobs, newest first."`
	Show   jobShow   `cmd:"" help:"How far a job has come."`
	Pause  jobPause  `cmd:"" help:"Let a job rest."`
	Resume jobResume `cmd:"" help:"Let a paused job go on."`
	Cancel jobCancel `cmd:"" help:"End a job where it stands; what it has done stays done."`
}

type jobsList struct {
	server
	Limit int  `default:"50" help:"At most so many."`
	JSON  bool `name:"json" help:"Print JSON."`
}

func (c *jobsList) Run(t *terminal) error {
	return c.with(func(p *client.Client) error {
		jobs, err := p.Jobs(t.ctx, c.Limit)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(t.out, jobs)
		}
		return printJobs(t.out, jobs)
	})
}

type jobShow struct {
	server
	ID      string `arg:"" help:"Job."`
	Results int    `help:"Also the results of so many deliveries."`
	After   string `help:"Results after this delivery: the last one of the page before."`
	JSON    bool   `name:"json" help:"Print JSON."`
}

func (c *jobShow) Run(t *terminal) error {
	lookup := delivery.JobLookup{Results: c.Results}
	var err error
	if lookup.ID, err = delivery.ParseID(c.ID); err != nil {
		return err
	}
	if c.After != "" {
		if lookup.After, err = delivery.ParseID(c.After); err != nil {
			return err
		}
	}
	return c.with(func(p *client.Client) error {
		job, err := p.Job(t.ctx, lookup)
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(t.out, job)
		}
		if err := printJobs(t.out, []delivery.Job{*job}); err != nil {
			return err
		}
		if job.Fault != "" {
			fmt.Fprintln(t.out, "it has trouble:", job.Fault)
		}
		for _, r := range job.Results {
			fmt.Fprintf(t.out, "%s  %s  %s\n", r.ID, r.Effect, r.Hint)
		}
		return nil
	})
}

// jobTurn is what pause, resume and cancel share.
type jobTurn struct {
	server
	ID string `arg:"" help:"Job."`
	warrant
	JSON bool `name:"json" help:"Print JSON."`
}

func (c jobTurn) turn(t *terminal, do func(*client.Client, context.Context, delivery.JobControl) (*delivery.Job, error)) error {
	id, err := delivery.ParseID(c.ID)
	if err != nil {
		return err
	}
	return c.with(func(p *client.Client) error {
		job, err := do(p, t.ctx, delivery.JobControl{ID: id, Warrant: c.warrant.get()})
		if err != nil {
			return err
		}
		if c.JSON {
			return printJSON(t.out, job)
		}
		return printJobs(t.out, []delivery.Job{*job})
	})
}

type jobPause struct{ jobTurn }

func (c *jobPause) Run(t *terminal) error { return c.turn(t, (*client.Client).PauseJob) }

type jobResume struct{ jobTurn }

func (c *jobResume) Run(t *terminal) error { return c.turn(t, (*client.Client).ResumeJob) }

type jobCancel struct{ jobTurn }

func (c *jobCancel) Run(t *terminal) error { return c.turn(t, (*client.Client).CancelJob) }
