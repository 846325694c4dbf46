package claim

import (
	"context"
	"time"
)

// doubt is what a transaction leaves behind whose answer was lost: for a while
// the database may have leased more to this worker than the worker knows of.
type doubt struct {
	until    time.Time      // zero: there is none
	after    time.Time      // newest claim known when the transaction began, by the database's clock: older rows are no part of it
	finished map[Known]bool // known to this worker and released since it began; their results decide, not we
}

// note remembers a released item while there is a doubt, or may be one about a
// transaction that is open.
func (d *doubt) note(k Known, open bool) {
	if d.until.IsZero() && !open {
		d.finished = nil
		return
	}
	if d.finished == nil {
		d.finished = make(map[Known]bool)
	}
	d.finished[k] = true
}

// suspect raises the doubt, or prolongs it; before is the newest claim that was
// known when the transaction began.
func (l *Loop[T]) suspect(before time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.doubt.until.IsZero() || before.Before(l.doubt.after) {
		l.doubt.after = before
	}
	l.doubt.until = time.Now().Add(l.cfg.Term)
}

// reconcile gives back what the database has leased to us without our knowledge.
// The lost transaction may still be on its way to its commit, so this is repeated
// at every look for one term. What we have worked on is never given back, stored
// or not: only the sweep may judge an attempt without a result. It waits for
// reservations, whose rows are not known yet either.
func (l *Loop[T]) reconcile(ctx context.Context, lease *Lease) error {
	l.mu.Lock()
	d := l.doubt
	if d.until.IsZero() || l.reserved > 0 {
		l.mu.Unlock()
		return nil
	}
	except := make([]Known, 0, len(l.inFlight)+len(d.finished))
	for k := range l.inFlight {
		except = append(except, k)
	}
	for k := range d.finished {
		except = append(except, k)
	}
	l.mu.Unlock()
	over := time.Now().After(d.until)
	if err := l.source.Return(ctx, lease.Worker, d.after, except); err != nil {
		return err
	}
	if over {
		l.mu.Lock()
		l.doubt = doubt{}
		l.mu.Unlock()
	}
	return nil
}
