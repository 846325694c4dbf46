package docket

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/pinned"
	"github.com/posthouse-io/posthouse/pkg/queue"
	"github.com/posthouse-io/posthouse/streams"
)

const kindDocuments, kindDeferred = queue.Documents, queue.Deferred

// Moved is what one write has done.
type Moved struct {
	Decision  document.Decision
	Published []outbox.Batch // to be handed to the relay
	Kind      string         // of the work that it made ready; empty: none
	Group     claim.Group
}

// Decide makes a decision from the facts, as they are under the lock.
type Decide func(f document.Facts, failures int, now time.Time) (document.Decision, error)

// held is what the queue says of a document under its lock.
type held struct {
	kind, state string
	lane, fence int32
	owner       *[16]byte
	claimedAt   *time.Time
	found       bool
}

// Settle writes what follows from a claim. ErrStale when another worker has the
// document now: then nothing moves, and the attempt is kept as evidence.
func (d *Docket) Settle(ctx context.Context, c Claimed, a *Attempt, decide Decide) (Moved, error) {
	m, err := d.settle(ctx, c, a, decide)
	if a != nil && errors.Is(err, ErrStale) {
		evidence, e := a.stored(a.Verdict.String())
		if e == nil {
			_, e = d.db.Exec(ctx, insertAttempt, [16]byte(c.ID), c.Fence, c.Attempts+1, c.Lane, [16]byte(c.Worker), c.ClaimedAt, "late", evidence)
		}
		err = errors.Join(err, e)
	}
	return m, err
}

func (d *Docket) settle(ctx context.Context, c Claimed, a *Attempt, decide Decide) (Moved, error) {
	return d.move(ctx, "settle document "+c.ID.String(), c.ID, a, decide, func(q held) error {
		if !q.found || q.fence != c.Fence || q.owner == nil || uuid.UUID(*q.owner) != c.Worker {
			return ErrStale
		}
		return nil
	}, func(held, document.Decision) error { return nil }, nil)
}

// Change writes what an operator, the backend or the watchdog causes. One that is
// in work is changed only by a note; other decisions meet ErrStale then. also adds
// to the transaction.
func (d *Docket) Change(ctx context.Context, id delivery.ID, decide Decide, also func(context.Context, pgx.Tx) error) (Moved, error) {
	return d.move(ctx, "change document "+id.String(), id, nil, decide, func(held) error { return nil }, func(q held, decision document.Decision) error {
		if q.state == "leased" && !decision.Note {
			return ErrStale // a worker has it
		}
		return nil
	}, also)
}

// move locks the queue row, then the document; owns is asked before the decision is
// made, may after it.
func (d *Docket) move(ctx context.Context, what string, id delivery.ID, a *Attempt, decide Decide, owns func(held) error, may func(held, document.Decision) error, also func(context.Context, pgx.Tx) error) (Moved, error) {
	var m Moved
	err := pinned.Begin(ctx, d.db, what, func(tx pgx.Tx) error {
		m = Moved{}
		var q held
		err := tx.QueryRow(ctx, lockQueued, [16]byte(id)).Scan(&q.kind, &q.lane, &q.state, &q.fence, &q.owner, &q.claimedAt)
		q.found = err == nil
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		if err := owns(q); err != nil {
			return err
		}
		var c Claimed
		if err := scan(tx.QueryRow(ctx, lockDocument, [16]byte(id)).Scan, &c); err != nil {
			if errors.Is(err, pgx.ErrNoRows) {
				return ErrNotFound
			}
			return err
		}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		decision, err := decide(c.Facts, c.Failures, now)
		if err != nil {
			return err
		}
		if err := may(q, decision); err != nil {
			return err
		}
		if also != nil {
			if err := also(ctx, tx); err != nil {
				return err
			}
		}
		m.Decision = decision
		return d.write(ctx, tx, c, q, a, now, &m)
	})
	if err != nil {
		return Moved{}, err
	}
	return m, nil
}

// write is the one place where a decision becomes rows.
func (d *Docket) write(ctx context.Context, tx pgx.Tx, c Claimed, q held, a *Attempt, now time.Time, m *Moved) error {
	decision := &m.Decision
	if decision.To == "" {
		return nil
	}
	if err := d.requeue(ctx, tx, c, q, m); err != nil || decision.Quiet {
		return err
	}
	c.Version++
	if a != nil {
		c.Attempts++
	}
	if decision.Counts {
		c.Failures++
	}
	if decision.Renew {
		c.Failures = 0
	}
	batch := outbox.Batch{ID: uuid.Must(uuid.NewV7())}
	if decision.Send != nil {
		answer, published, err := d.answer(ctx, tx, decision.Send)
		if err != nil {
			return err
		}
		decision.MLS.Delivery = answer
		m.Published = append(m.Published, published)
	}
	e, err := document.NewEvent(c.Facts, *decision, int(c.Version), now)
	if err != nil {
		return err
	}
	e.AS4MessageID, e.Attempts = c.AS4MessageID, c.Attempts
	var stored []byte
	if a != nil {
		answer := a.Answer.Bounded()
		e.Answer = &answer
		if stored, err = a.stored(""); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, insertAttempt, [16]byte(c.ID), q.fence, c.Attempts, q.lane, q.owner, q.claimedAt, a.Verdict.String(), stored); err != nil {
			return err
		}
	}
	var issues []byte
	if len(decision.Issues) > 0 {
		if issues, err = json.Marshal(decision.Issues); err != nil {
			return err
		}
	}
	var carried *[16]byte
	if decision.MLS.Delivery != (delivery.ID{}) {
		carried = (*[16]byte)(&decision.MLS.Delivery)
	}
	if _, err := tx.Exec(ctx, moveDocument, [16]byte(c.ID), string(decision.To), c.Version, q.fence, c.Attempts, c.Failures, string(decision.Verdict), issues, decision.C4Country,
		string(decision.MLS.Status), string(decision.MLS.Code), carried, stored); err != nil {
		return err
	}
	if decision.MLSDue.IsZero() {
		_, err = tx.Exec(ctx, dropDeadline, [16]byte(c.ID))
	} else {
		_, err = tx.Exec(ctx, putDeadline, [16]byte(c.ID), decision.MLSDue)
	}
	if err != nil {
		return err
	}
	if err := tell(ctx, tx, e, c.Trace, &batch); err != nil {
		return err
	}
	m.Published = append(m.Published, batch)
	_, err = tx.Exec(ctx, outbox.Insert, [16]byte(batch.ID), [][16]byte{c.ID}, []int32{c.Version})
	return err
}

// requeue gives the document its place for what comes next.
func (d *Docket) requeue(ctx context.Context, tx pgx.Tx, c Claimed, q held, m *Moved) error {
	decision := m.Decision
	version := c.Version
	if !decision.Quiet {
		version++
	}
	if decision.Note {
		_, err := tx.Exec(ctx, reversion, [16]byte(c.ID), version)
		return err
	}
	kind, laneID := kindDocuments, d.lanes.forward
	if decision.To == document.Deferred {
		kind, laneID = kindDeferred, d.lanes.deferred
	}
	if q.found && (decision.Due.IsZero() || q.kind != kind) {
		if _, err := tx.Exec(ctx, dequeue, [16]byte(c.ID)); err != nil {
			return err
		}
	}
	if decision.Due.IsZero() {
		return nil
	}
	fence := max(q.fence, c.Fence)
	if _, err := tx.Exec(ctx, enqueue, kind, [16]byte(c.ID), laneID, c.Tenant, decision.Due, fence, version); err != nil {
		return err
	}
	m.Kind, m.Group = kind, claim.Group{Lane: laneID, Tenant: c.Tenant, Class: 1}
	return nil
}

// tell writes the event and adds it to the batch.
func tell(ctx context.Context, tx pgx.Tx, e *document.Event, trace string, batch *outbox.Batch) error {
	body, err := e.Encode()
	if err != nil {
		return err
	}
	m := outbox.Message{ID: e.Event, Subject: streams.Event(streams.KindDocument, string(e.State), "", e.Tenant), Body: body, Trace: trace}
	batch.Messages = append(batch.Messages, m)
	_, err = tx.Exec(ctx, insertEvent, [16]byte(e.ID), e.Version, string(e.State), m.Subject, body)
	return err
}
