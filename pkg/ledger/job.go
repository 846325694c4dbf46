package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/audit"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// ErrNoJob says that there is no such job.
var ErrNoJob = errors.New("no such job")

// JobStateError says that a job cannot be paused, resumed or cancelled as it is.
type JobStateError struct {
	ID       delivery.ID
	Is, Want delivery.JobState
}

func (e *JobStateError) Error() string {
	return fmt.Sprintf("job %s is %s and cannot become %s", e.ID, e.Is, e.Want)
}

// Counting is bounded: it is for a person who waits.
const (
	countScan  = 5000
	countRows  = 1_000_000
	countBound = 4 * time.Second
)

// CountJob counts what a job would be for, without doing it. The command must
// have been checked.
func (l *Ledger) CountJob(ctx context.Context, c delivery.JobCommand) (delivery.JobCount, error) {
	at, err := l.jobStart(ctx, c.Filter)
	if err != nil {
		return delivery.JobCount{}, fmt.Errorf("count: %w", err)
	}
	var total delivery.JobCount
	for late := time.Now().Add(countBound); at.phase != phaseEnd; {
		if total.Count >= countRows || time.Now().After(late) {
			return total, nil
		}
		p := newPipeline()
		var page page
		page.query(p, at, c.Filter, countScan)
		if err := l.run(ctx, p); err != nil {
			return total, fmt.Errorf("count: %w", err)
		}
		total.Count += len(page.matched)
		at = page.next(at, c.Filter)
	}
	total.Complete = true
	return total, nil
}

// StartJob writes a job and its audit. A sender takes it and works on it. The
// command must have been checked.
func (l *Ledger) StartJob(ctx context.Context, c delivery.JobCommand) (*delivery.Job, error) {
	total, err := l.CountJob(ctx, c)
	if err != nil {
		return nil, err
	}
	at, err := l.jobStart(ctx, c.Filter)
	if err != nil {
		return nil, fmt.Errorf("start a job: %w", err)
	}
	filter, err := json.Marshal(c.Filter)
	if err != nil {
		return nil, fmt.Errorf("start a job: %w", err)
	}
	expiry, err := json.Marshal(c.Expiry)
	if err != nil {
		return nil, fmt.Errorf("start a job: %w", err)
	}
	id := delivery.ID(newBatchID())
	err = l.begin(ctx, "start a job", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, insertJob, [16]byte(id), string(c.Kind), filter, expiry, c.By, c.Why, c.Rate, at.upper, at.phase, at.cursor,
			total.Count, total.Complete); err != nil {
			return err
		}
		return audit.Write(ctx, tx, c.Warrant, "job.start", []string{id.String()}, []string{fmt.Sprintf("%s of %d", c.Kind, total.Count)})
	})
	if err != nil {
		return nil, err
	}
	return l.Job(ctx, delivery.JobLookup{ID: id})
}

// TurnJob pauses, resumes or cancels a job, with its audit. It waits for the page
// that is being done. A job that is so already is left alone.
func (l *Ledger) TurnJob(ctx context.Context, c delivery.JobControl, want delivery.JobState) (*delivery.Job, error) {
	action := map[delivery.JobState]string{delivery.JobPaused: "job.pause", delivery.JobRunning: "job.resume", delivery.JobCancelled: "job.cancel"}[want]
	from := map[delivery.JobState][]delivery.JobState{delivery.JobPaused: {delivery.JobRunning}, delivery.JobRunning: {delivery.JobPaused},
		delivery.JobCancelled: {delivery.JobRunning, delivery.JobPaused}}[want]
	err := l.begin(ctx, action, func(tx pgx.Tx) error {
		var is delivery.JobState
		err := tx.QueryRow(ctx, lockJobState, [16]byte(c.ID)).Scan(&is)
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return ErrNoJob
		case err != nil:
			return err
		case is != want && !slices.Contains(from, is):
			return &JobStateError{ID: c.ID, Is: is, Want: want}
		}
		result := string(want)
		if is == want {
			result = "was " + result
		} else if _, err := tx.Exec(ctx, turnJob, [16]byte(c.ID), string(want)); err != nil {
			return err
		}
		return audit.Write(ctx, tx, c.Warrant, action, []string{c.ID.String()}, []string{result})
	})
	if err != nil {
		return nil, err
	}
	return l.Job(ctx, delivery.JobLookup{ID: c.ID})
}

// Job tells how far a job has come.
func (l *Ledger) Job(ctx context.Context, ask delivery.JobLookup) (*delivery.Job, error) {
	var job *delivery.Job
	var results []delivery.CommandResult
	p := newPipeline()
	p.Query(selectJob, func(rows pgx.Rows) (err error) {
		job, err = scanJob(rows)
		return err
	}, [16]byte(ask.ID))
	if ask.Results > 0 {
		p.Query(selectResults, func(rows pgx.Rows) error {
			var id [16]byte
			var effect delivery.Effect
			err := rows.Scan(&id, &effect)
			results = append(results, delivery.CommandResult{ID: id, Effect: effect, Hint: effect.Hint()})
			return err
		}, [16]byte(ask.ID), [16]byte(ask.After), min(ask.Results, delivery.MaxCommandIDs))
	}
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("job %s: %w", ask.ID, err)
	}
	if job == nil {
		return nil, ErrNoJob
	}
	job.Results = results
	return job, nil
}

// Jobs lists jobs, newest first.
func (l *Ledger) Jobs(ctx context.Context, limit int) ([]delivery.Job, error) {
	if limit <= 0 {
		limit = 50
	}
	jobs := []delivery.Job{}
	p := newPipeline()
	p.Query(selectJobs, func(rows pgx.Rows) error {
		job, err := scanJob(rows)
		if err == nil {
			jobs = append(jobs, *job)
		}
		return err
	}, min(limit, 1000))
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return jobs, nil
}

func scanJob(rows pgx.Rows) (*delivery.Job, error) {
	var j delivery.Job
	var id [16]byte
	var filter, expiry []byte
	if err := rows.Scan(&id, &j.Kind, &j.State, &filter, &expiry, &j.Rate, &j.Total.Count, &j.Total.Complete, &j.Done, &j.Skipped, &j.Failed, &j.Fault,
		&j.CreatedAt, &j.UpdatedAt, &j.By, &j.Why); err != nil {
		return nil, err
	}
	j.ID = id
	return &j, errors.Join(json.Unmarshal(filter, &j.Filter), json.Unmarshal(expiry, &j.Expiry))
}
