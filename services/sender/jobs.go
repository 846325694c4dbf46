package sender

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

const (
	jobsAtOnce = 4                // in one instance, so that a slow job does not keep others waiting
	jobPoll    = 5 * time.Second  // how often work of dead instances is looked for
	jobTerm    = 15 * time.Second // lease of a job, renewed by each step
	jobPage    = 200              // most deliveries of one step
	jobScan    = 5000             // most ids that one step looks at
	jobFaults  = 5                // steps in a row that may fail before the job is left to another instance
)

// jobs works on operators' jobs, a page at a time, at the rate that each asks
// for. It is paced by the database: what a step did is committed with how far it
// came, and any other instance goes on from there.
type jobs struct {
	*operator
	owner  string
	log    zerolog.Logger
	signal chan struct{}
}

func newJobs(o *operator, owner string, log zerolog.Logger) *jobs {
	return &jobs{operator: o, owner: owner, log: log, signal: make(chan struct{}, 1)}
}

// poke has the next look for a job happen at once.
func (j *jobs) poke() {
	select {
	case j.signal <- struct{}{}:
	default:
	}
}

// run takes jobs until taking ends and returns when the steps in hand are done.
func (j *jobs) run(taking, working context.Context) {
	var active sync.WaitGroup
	defer active.Wait()
	slots := make(chan struct{}, jobsAtOnce)
	for {
		for taking.Err() == nil && len(slots) < jobsAtOnce {
			id, rate, found, err := j.book.TakeJob(taking, j.owner, jobTerm)
			if err != nil && taking.Err() == nil {
				j.log.Warn().Err(err).Msg("cannot look for jobs; trying again")
			}
			if err != nil || !found {
				break
			}
			slots <- struct{}{}
			active.Go(func() {
				defer func() { <-slots; j.poke() }()
				j.work(taking, working, id, rate)
			})
		}
		t := time.NewTimer(jobPoll/2 + rand.N(jobPoll))
		select {
		case <-taking.Done():
		case <-j.signal:
		case <-t.C:
		}
		t.Stop()
		if taking.Err() != nil {
			return
		}
	}
}

// work does one job until it is done, no longer ours, or taking ends.
func (j *jobs) work(taking, working context.Context, id delivery.ID, rate int) {
	log := j.log.With().Stringer("job", id).Logger()
	log.Info().Int("rate", rate).Msg("working on a job")
	limit := max(1, min(jobPage, rate/4))
	scan, faults, fault := 2*limit, 0, ""
	for taking.Err() == nil {
		began := time.Now()
		step, err := j.book.StepJob(working, id, j.owner, jobTerm, limit, scan)
		if err == nil {
			faults = 0
			_, _ = j.after(step.Carried, nil)
		}
		var wait time.Duration
		switch {
		case errors.Is(err, ledger.ErrJobGone):
			log.Info().Msg("the job was paused, cancelled or taken over")
			return
		case err != nil && taking.Err() != nil:
		case err != nil:
			if faults++; faults >= jobFaults {
				fault = err.Error()
			}
			log.Warn().Err(err).Msg("a step of a job failed; trying again")
			wait = min(time.Second<<faults, jobTerm/3)
		case step.End:
			log.Info().Msg("job done")
			return
		default:
			wait = time.Duration(step.Done+step.Skipped)*time.Second/time.Duration(rate) - time.Since(began)
			scan = nextScan(scan, limit, step)
		}
		if fault != "" {
			break
		}
		t := time.NewTimer(max(wait, 0))
		select {
		case <-taking.Done():
		case <-t.C:
		}
		t.Stop()
	}
	if err := j.book.LeaveJob(working, id, j.owner, fault); err != nil {
		log.Warn().Err(err).Msg("the lease of the job is left to run out")
	}
}

// nextScan looks further where little is found, and less far where much is.
func nextScan(scan, limit int, step ledger.Step) int {
	if found := step.Done + step.Skipped; found < limit/2+1 {
		return min(2*scan, jobScan)
	}
	return max(scan/2, 2*limit)
}
