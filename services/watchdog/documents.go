package watchdog

import (
	"context"
	"errors"
	"time"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// docket opens the book of documents when it is first needed.
func (w *watchdog) docket(ctx context.Context) (*docket.Docket, error) {
	if d := w.docs.Load(); d != nil {
		return d, nil
	}
	d, err := docket.Open(ctx, w.db, w.book, &w.cfg.Policy)
	if err == nil {
		w.docs.Store(d)
	}
	return d, err
}

// sweepDocuments gives documents back whose worker is gone: whether they reached the
// backend is unknown.
func (w *watchdog) sweepDocuments(ctx context.Context) error {
	docs, err := w.docket(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, kind := range []*docket.Kind{docs.Documents(), docs.Deferred()} {
		found, err := kind.Stuck(ctx, w.cfg.MaxHold, page)
		errs = append(errs, err)
		for _, c := range found {
			errs = append(errs, w.giveUpLease(ctx, docs, c))
		}
	}
	return errors.Join(errs...)
}

func (w *watchdog) giveUpLease(ctx context.Context, docs *docket.Docket, c docket.Claimed) error {
	answer := delivery.Answer{Category: delivery.Transient, Phase: "lease", Code: recovered, Text: "the worker that had it is gone; whether its attempt arrived is unknown"}
	attempt := &docket.Attempt{Verdict: delivery.Unknown, Answer: answer}
	if !c.Forwardable(&w.cfg.Policy) { // it was being verified
		attempt = nil
	}
	m, err := docs.Settle(ctx, c, attempt, func(f document.Facts, failures int, now time.Time) (document.Decision, error) {
		return f.LeaseExpired(w.cfg.Schedule.Next(failures, answer, 0, now), &w.cfg.Policy, now)
	})
	if errors.Is(err, docket.ErrStale) {
		return nil // it came back, or another watchdog was first
	}
	if err != nil {
		return err
	}
	w.moved(m)
	w.log.Warn().Stringer("document", c.ID).Str("tenant", c.Tenant).Stringer("worker", c.Worker).Int32("fence", c.Fence).Str("state", string(m.Decision.To)).
		Msg("a document was found without its worker")
	return nil
}

// moved publishes what a write has to say and rings for what it made ready.
func (w *watchdog) moved(m docket.Moved) {
	for _, batch := range m.Published {
		w.hand(batch)
	}
	if m.Kind == "" {
		return
	}
	_ = bus.Ring(w.nats, m.Kind, claim.Bell{From: w.instance, Groups: []claim.Group{m.Group}}) // nobody need hear it
}

// untilAnswer is when the next backend has been silent for too long.
func (w *watchdog) untilAnswer(ctx context.Context) time.Duration {
	docs, err := w.docket(ctx)
	if err != nil {
		return noWorker
	}
	wait, err := docs.NextAnswer(ctx)
	if err != nil || wait < 0 {
		return answerCheck
	}
	return min(max(wait, 50*time.Millisecond), answerCheck)
}

// answerCheck is how often it is looked for deadlines that are new.
const answerCheck = 5 * time.Second

// answerC2 answers in place of backends that are silent, at their time.
func (w *watchdog) answerC2(ctx context.Context) error {
	docs, err := w.docket(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for ctx.Err() == nil {
		due, err := docs.DueAnswers(ctx, page)
		if err != nil || len(due) == 0 {
			return errors.Join(append(errs, err)...)
		}
		failed := 0
		for _, id := range due {
			m, answered, err := docs.Answer(ctx, id)
			if err != nil {
				errs = append(errs, err)
				failed++
				continue
			}
			w.moved(m)
			if answered {
				w.log.Warn().Stringer("document", id).Str("mls", string(m.Decision.MLS.Code)).Msg("the backend was silent for too long: C2 is answered in its place")
			}
		}
		if failed > 0 {
			return errors.Join(errs...)
		}
	}
	return errors.Join(errs...)
}
