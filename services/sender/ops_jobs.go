package sender

import (
	"context"
	"errors"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

func (j *jobs) start(ctx context.Context, req bus.Request) (any, error) {
	var c delivery.JobCommand
	if err := req.Decode(&c); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, refuse(err)
	}
	if c.DryRun {
		return j.book.CountJob(ctx, c)
	}
	job, err := j.book.StartJob(ctx, c)
	if err == nil {
		j.poke()
	}
	return job, err
}

// listing is how many jobs to list.
type listing struct {
	Limit int `json:"limit,omitempty"` // default 50, at most 1000
}

func (j *jobs) list(ctx context.Context, req bus.Request) (any, error) {
	var ask listing
	if err := req.Decode(&ask); err != nil {
		return nil, err
	}
	return j.book.Jobs(ctx, ask.Limit)
}

func (j *jobs) show(ctx context.Context, req bus.Request) (any, error) {
	var ask delivery.JobLookup
	if err := req.Decode(&ask); err != nil {
		return nil, err
	}
	job, err := j.book.Job(ctx, ask)
	return job, jobRefusal(err)
}

func (j *jobs) turn(want delivery.JobState) func(context.Context, bus.Request) (any, error) {
	return func(ctx context.Context, req bus.Request) (any, error) {
		var c delivery.JobControl
		if err := req.Decode(&c); err != nil {
			return nil, err
		}
		if err := c.Check(); err != nil {
			return nil, refuse(err)
		}
		job, err := j.book.TurnJob(ctx, c, want)
		if err == nil && want == delivery.JobRunning {
			j.poke()
		}
		return job, jobRefusal(err)
	}
}

// jobRefusal turns what a caller can do something about into an answer.
func jobRefusal(err error) error {
	var state *ledger.JobStateError
	switch {
	case errors.Is(err, ledger.ErrNoJob):
		return &bus.Error{Code: "404", Text: "no such job; list them with jobs"}
	case errors.As(err, &state):
		return &bus.Error{Code: "409", Text: state.Error() + "; start a new job for what is left"}
	}
	return err
}
