package client

import (
	"context"
	"fmt"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// What operators do. Each command says who orders it and why, and leaves an audit
// row; repeating one is safe. A refusal is a *bus.Error whose text says what to do.

// Retry puts deliveries back into the queue, due at once.
func (c *Client) Retry(ctx context.Context, command delivery.RetryCommand) (*delivery.CommandReport, error) {
	return ask[delivery.CommandReport](ctx, c, "sender", "retry", command)
}

// Cancel calls deliveries back that wait.
func (c *Client) Cancel(ctx context.Context, command delivery.CancelCommand) (*delivery.CommandReport, error) {
	return ask[delivery.CommandReport](ctx, c, "sender", "cancel", command)
}

// Settle says of held deliveries that they arrived or did not.
func (c *Client) Settle(ctx context.Context, command delivery.SettleCommand) (*delivery.CommandReport, error) {
	return ask[delivery.CommandReport](ctx, c, "sender", "settle", command)
}

// CountJob tells how many deliveries a job would be for.
func (c *Client) CountJob(ctx context.Context, command delivery.JobCommand) (*delivery.JobCount, error) {
	command.DryRun = true
	return ask[delivery.JobCount](ctx, c, "sender", "job-start", command)
}

// StartJob starts a job over all that its filter finds; it goes on by itself.
func (c *Client) StartJob(ctx context.Context, command delivery.JobCommand) (*delivery.Job, error) {
	command.DryRun = false
	return ask[delivery.Job](ctx, c, "sender", "job-start", command)
}

// Job tells how far a job has come.
func (c *Client) Job(ctx context.Context, lookup delivery.JobLookup) (*delivery.Job, error) {
	return ask[delivery.Job](ctx, c, "sender", "job", lookup)
}

// Jobs lists jobs, newest first; 0 is the default of 50.
func (c *Client) Jobs(ctx context.Context, limit int) ([]delivery.Job, error) {
	jobs, err := ask[[]delivery.Job](ctx, c, "sender", "jobs", map[string]int{"limit": limit})
	if err != nil {
		return nil, err
	}
	return *jobs, nil
}

// PauseJob lets a job rest.
func (c *Client) PauseJob(ctx context.Context, control delivery.JobControl) (*delivery.Job, error) {
	return ask[delivery.Job](ctx, c, "sender", "job-pause", control)
}

// ResumeJob lets a paused job go on.
func (c *Client) ResumeJob(ctx context.Context, control delivery.JobControl) (*delivery.Job, error) {
	return ask[delivery.Job](ctx, c, "sender", "job-resume", control)
}

// CancelJob ends a job where it stands; what it has done stays done.
func (c *Client) CancelJob(ctx context.Context, control delivery.JobControl) (*delivery.Job, error) {
	return ask[delivery.Job](ctx, c, "sender", "job-cancel", control)
}

// Triage marks dead letters as handled. It sends nothing again.
func (c *Client) Triage(ctx context.Context, command delivery.TriageCommand) (*delivery.TriageReport, error) {
	return ask[delivery.TriageReport](ctx, c, "dead-letter", "triage", command)
}

// Audit lists what operators have done, newest first.
func (c *Client) Audit(ctx context.Context, f delivery.AuditFilter) ([]delivery.AuditEntry, error) {
	entries, err := ask[[]delivery.AuditEntry](ctx, c, "sender", "audit", f)
	if err != nil {
		return nil, err
	}
	return *entries, nil
}

func ask[T any](ctx context.Context, c *Client, service, verb string, in any) (*T, error) {
	var out T
	if err := bus.Call(ctx, c.nc, streams.Ops(service, verb), in, &out); err != nil {
		return nil, fmt.Errorf("%s: %w", verb, err)
	}
	return &out, nil
}
