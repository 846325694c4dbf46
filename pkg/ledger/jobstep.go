package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// ErrJobGone says that a job is no longer this owner's: it was paused, cancelled,
// finished, or its lease lapsed and somebody else has it.
var ErrJobGone = errors.New("the job is not ours any more")

// Phases of a job, in order.
const (
	phaseQueue   = "queue"
	phaseArchive = "archive"
	phaseEnd     = "end"
)

// place is how far a job has come.
type place struct {
	phase         string
	cursor, upper [16]byte
	lower         [16]byte // where a phase begins
}

// inQueue and inArchive tell where deliveries of the filter are found.
func inQueue(s delivery.State) bool   { return !s.Final() }
func inArchive(s delivery.State) bool { return s.Final() }

// jobStart is the place before the first page. What is accepted later than now
// is not looked at, so a job ends.
func (l *Ledger) jobStart(ctx context.Context, f delivery.JobFilter) (place, error) {
	var at place
	p := newPipeline()
	p.Query(jobBounds, func(rows pgx.Rows) error { return rows.Scan(&at.upper, &at.lower) }, f.AcceptedFrom, f.AcceptedTo)
	if err := l.run(ctx, p); err != nil {
		return at, err
	}
	at.phase = phaseQueue
	if !slices.ContainsFunc(f.States, inQueue) {
		at.phase = phaseArchive
	}
	at.cursor = before(at.lower)
	return at, nil
}

// before is the id just below: cursors are exclusive.
func before(id [16]byte) [16]byte {
	for i := 15; i >= 0; i-- {
		id[i]--
		if id[i] != 0xff {
			return id
		}
	}
	return [16]byte{} // below the first: ids of version 7 are never zero
}

// page is what one look has seen: every id in order, and which the filter finds.
type page struct {
	seen    [][16]byte
	matched []delivery.ID
	full    bool // more may follow
}

// query asks for the next scan ids.
func (g *page) query(p *pipeline, at place, f delivery.JobFilter, scan int) {
	sql, here := pageOfQueue, inQueue
	if at.phase == phaseArchive {
		sql, here = pageOfArchive, inArchive
	}
	var states []string
	for _, s := range f.States {
		if here(s) {
			states = append(states, string(s))
		}
	}
	n := 0
	p.Query(sql, func(rows pgx.Rows) error {
		var id [16]byte
		var match bool
		if err := rows.Scan(&id, &match); err != nil {
			return err
		}
		if n++; n == scan {
			g.full = true
		}
		if len(g.seen) > 0 && g.seen[len(g.seen)-1] == id {
			return nil // it has several letters
		}
		g.seen = append(g.seen, id)
		if match {
			g.matched = append(g.matched, id)
		}
		return nil
	}, at.cursor, at.upper, scan, states, f.Tenant, string(f.Channel), f.Code, string(f.Category), f.RequestID)
}

// cut keeps the page up to its limit-th match.
func (g *page) cut(limit int) {
	if len(g.matched) <= limit {
		return
	}
	g.matched, g.full = g.matched[:limit], true
	g.seen = g.seen[:slices.Index(g.seen, [16]byte(g.matched[limit-1]))+1]
}

// next is the place after the page.
func (g *page) next(at place, f delivery.JobFilter) place {
	switch {
	case g.full:
		at.cursor = g.seen[len(g.seen)-1]
	case at.phase == phaseQueue && slices.ContainsFunc(f.States, inArchive):
		at.phase, at.cursor = phaseArchive, before(at.lower)
	default:
		at.phase = phaseEnd
	}
	return at
}

// TakeJob takes a running job that nobody works on under a lease of the given
// term; false: there is none.
func (l *Ledger) TakeJob(ctx context.Context, owner string, term time.Duration) (id delivery.ID, rate int, found bool, err error) {
	p := newPipeline()
	p.Query(takeJob, func(rows pgx.Rows) error {
		found = true
		var raw [16]byte
		err := rows.Scan(&raw, &rate)
		id = raw
		return err
	}, owner, term.Seconds())
	if err := l.run(ctx, p); err != nil {
		return id, 0, false, fmt.Errorf("take a job: %w", err)
	}
	return id, rate, found, nil
}

// LeaveJob gives a job up, for somebody else to take; fault says why, if for no
// good reason.
func (l *Ledger) LeaveJob(ctx context.Context, id delivery.ID, owner, fault string) error {
	p := newPipeline()
	p.Exec(leaveJob, [16]byte(id), owner, delivery.Bound(fault))
	if err := l.run(ctx, p); err != nil {
		return fmt.Errorf("leave job %s: %w", id, err)
	}
	return nil
}

// Step is what one step of a job has done.
type Step struct {
	Carried
	Seen int  // ids looked at
	End  bool // the job is done
}

// StepJob does the next page of a job, at most limit deliveries of scan ids, and
// renews the lease. Moves, results, cursor and counters are one transaction, so a
// crash repeats nothing and leaves nothing out. ErrJobGone: stop.
func (l *Ledger) StepJob(ctx context.Context, id delivery.ID, owner string, term time.Duration, limit, scan int) (Step, error) {
	lane, err := l.Lane(ctx, PrepareLane, "delivery")
	if err != nil {
		return Step{}, err
	}
	var step Step
	err = l.begin(ctx, "step of job "+id.String(), func(tx pgx.Tx) error {
		step = Step{}
		j, err := lockRunning(ctx, tx, id, owner)
		if err != nil {
			return err
		}
		var g page
		p := &pipeline{}
		g.query(p, j.at, j.filter, scan)
		if err := tx.SendBatch(ctx, &p.Batch).Close(); err != nil {
			return err
		}
		g.cut(limit)
		step.Seen = len(g.seen)
		fresh, err := withoutResult(ctx, tx, id, g.matched)
		if err != nil {
			return err
		}
		failed := 0
		if len(fresh) > 0 {
			done, err := carryEach(ctx, tx, j.order(lane), fresh)
			if err != nil {
				return err
			}
			step.add(fresh, done)
			effects := make([]string, len(fresh))
			for i, id := range fresh {
				if effects[i] = string(done.effects[id]); done.effects[id] == delivery.EffectError {
					failed++
				}
			}
			if _, err := tx.Exec(ctx, insertResults, [16]byte(id), ids(fresh), effects); err != nil {
				return err
			}
		}
		at := g.next(j.at, j.filter)
		step.End = at.phase == phaseEnd
		_, err = tx.Exec(ctx, advanceJob, [16]byte(id), at.phase, at.cursor, step.Done, step.Skipped-failed, failed, term.Seconds())
		return err
	})
	if err != nil {
		return Step{}, err // it may not have been committed: nothing of it is told
	}
	return step, nil
}

// runningJob is what a step needs to know of its job.
type runningJob struct {
	kind    delivery.JobKind
	filter  delivery.JobFilter
	expiry  delivery.Expiry
	at      place
	warrant delivery.Warrant
}

func lockRunning(ctx context.Context, tx pgx.Tx, id delivery.ID, owner string) (runningJob, error) {
	var j runningJob
	var filter, expiry []byte
	err := tx.QueryRow(ctx, lockJob, [16]byte(id), owner).Scan(&j.kind, &filter, &expiry, &j.at.phase, &j.at.cursor, &j.at.upper, &j.warrant.By, &j.warrant.Why)
	if errors.Is(err, pgx.ErrNoRows) {
		return j, ErrJobGone
	}
	if err == nil {
		err = errors.Join(json.Unmarshal(filter, &j.filter), json.Unmarshal(expiry, &j.expiry))
	}
	if err == nil {
		err = tx.QueryRow(ctx, jobBounds, j.filter.AcceptedFrom, j.filter.AcceptedTo).Scan(new([16]byte), &j.at.lower)
	}
	return j, err
}

func (j runningJob) order(lane int32) order {
	if j.kind == delivery.JobCancel {
		return cancelOrder(j.warrant)
	}
	return retryOrder(lane, j.warrant, j.expiry)
}

// withoutResult leaves out what this job has come upon before, on another way.
func withoutResult(ctx context.Context, tx pgx.Tx, job delivery.ID, matched []delivery.ID) ([]delivery.ID, error) {
	if len(matched) == 0 {
		return nil, nil
	}
	var have []delivery.ID
	p := &pipeline{}
	p.Query(resultsAmong, func(rows pgx.Rows) error {
		var id [16]byte
		err := rows.Scan(&id)
		have = append(have, id)
		return err
	}, [16]byte(job), ids(matched))
	err := tx.SendBatch(ctx, &p.Batch).Close()
	return slices.DeleteFunc(slices.Clone(matched), func(id delivery.ID) bool { return slices.Contains(have, id) }), err
}

// carryEach carries out the order on all at once, or, should the database refuse
// that, on one half and the other, so that a row that cannot be moved stands alone.
func carryEach(ctx context.Context, tx pgx.Tx, o order, named []delivery.ID) (carrying, error) {
	var done carrying
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) (err error) { // a savepoint
		done, err = carry(ctx, tx, o, named)
		return err
	})
	switch {
	case err == nil || !Refused(err):
		return done, err
	case len(named) == 1:
		return carrying{effects: map[delivery.ID]delivery.Effect{named[0]: delivery.EffectError}}, nil
	}
	done, err = carryEach(ctx, tx, o, named[:len(named)/2])
	if err != nil {
		return done, err
	}
	rest, err := carryEach(ctx, tx, o, named[len(named)/2:])
	return done.and(rest), err
}
