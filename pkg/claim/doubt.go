package claim

import (
	"context"
	"time"
)

// doubt is what a claim leaves behind whose answer was lost: for a while the
// database may have leased more to this worker than the worker knows of.
type doubt struct {
	until    time.Time             // zero: there is none
	after    time.Time             // newest claim known when it arose, by the database's clock: older rows are no part of it
	finished map[[16]byte]struct{} // known to this worker, claimed and released since; their results decide, not we
}

// suspect raises the doubt, or prolongs it.
func (l *Loop[T]) suspect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.doubt.until.IsZero() {
		l.doubt = doubt{after: l.newest, finished: make(map[[16]byte]struct{})}
	}
	l.doubt.until = time.Now().Add(l.cfg.Term)
}

// reconcile gives back what the database has leased to us without our knowledge.
// The lost claim may still be on its way to its commit, so this is repeated at
// every look for one term. What we have worked on is never given back, stored or
// not: only the sweep may judge an attempt without a result.
func (l *Loop[T]) reconcile(ctx context.Context, lease *Lease) error {
	l.mu.Lock()
	d := l.doubt
	except := make([][16]byte, 0, len(l.inFlight)+len(d.finished))
	for k := range l.inFlight {
		except = append(except, k)
	}
	for k := range d.finished {
		except = append(except, k)
	}
	l.mu.Unlock()
	if d.until.IsZero() {
		return nil
	}
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
