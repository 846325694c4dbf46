// Package clerk is the desk that the services of received documents share: it
// stores what follows from a step or from a command, publishes it, rings for what has
// become ready and tells of it; and it puts a document before the verifiers.
//
// It decides nothing: package document does. It tries to store until its time is
// over (Storing); what is not stored by then is found by the watchdog's sweep. It
// starts no goroutine.
package clerk

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
)

// Clerk is one desk; set the fields before the first use. Change needs only Docs,
// Hand and Ready.
type Clerk struct {
	Docs    *docket.Docket
	Policy  *document.Policy
	Hand    func(outbox.Batch) // to the relay
	Ready   func(docket.Moved) // rings
	Storing context.Context    // bounds the storing of results, which outlives the work
	Log     zerolog.Logger
}

// Store writes what follows, and tells of it in one line. It tries on until the
// time for storing is over; then the sweep finds the attempt as unknown.
func (k *Clerk) Store(c docket.Claimed, a *docket.Attempt, decide docket.Decide) {
	var m docket.Moved
	var refused error // by the document itself: it will not change its mind
	err := Insist(k.Storing, k.Log, "a result can not be stored", func() (err error) {
		m, err = k.Docs.Settle(k.Storing, c, a, decide)
		if errors.Is(err, docket.ErrStale) || errors.Is(err, document.ErrState) {
			refused, err = err, nil
		}
		return err
	})
	switch {
	case err != nil:
		k.Log.Error().Err(err).Stringer("document", c.ID).Msg("the result could not be stored; the attempt will be found as unknown")
		return
	case errors.Is(refused, docket.ErrStale):
		k.Log.Warn().Stringer("document", c.ID).Int32("fence", c.Fence).Msg("a result came after the document had moved on")
		return
	case refused != nil:
		k.Log.Error().Err(refused).Stringer("document", c.ID).Int32("fence", c.Fence).Msg("nothing follows from the result; the document stays in work until this process ends")
		return
	}
	for _, batch := range m.Published {
		k.Hand(batch)
	}
	if m.Kind != "" && !m.Decision.Due.After(time.Now()) {
		k.Ready(m)
	}
	d := m.Decision
	line := k.Log.Info()
	if d.To == document.Dead || d.To == document.Rejected {
		line = k.Log.Error()
	} else if d.To == document.Retry {
		line = k.Log.Warn()
	}
	if a != nil {
		line = line.Int("attempt", c.Attempts+1).Str("verdict", a.Verdict.String()).Str("code", a.Answer.Code).Str("text", a.Answer.Text)
	}
	line.Stringer("document", c.ID).Str("tenant", c.Tenant).Str("state", string(d.To)).Str("mls", string(d.MLS.Code)).Time("due", d.Due).Msg(string(d.Cause))
}

// Change writes what somebody orders and gives the document as it is then. also may
// be nil; it is part of the same transaction.
func (k *Clerk) Change(ctx context.Context, id delivery.ID, decide docket.Decide, also func(context.Context, pgx.Tx) error) (*document.Status, error) {
	m, err := k.Docs.Change(ctx, id, decide, also)
	if err != nil {
		return nil, err
	}
	for _, batch := range m.Published {
		k.Hand(batch)
	}
	if m.Kind != "" {
		k.Ready(m)
	}
	return k.Docs.Status(ctx, id)
}

// Insist repeats do until it succeeds, is refused for good, or ctx ends.
func Insist(ctx context.Context, log zerolog.Logger, what string, do func() error) error {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := do()
		if err == nil || ledger.Refused(err) {
			return err
		}
		log.Warn().Err(err).Msg(what + "; trying again")
		t := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
	}
}
