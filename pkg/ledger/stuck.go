package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// Stuck lists claimed deliveries whose worker has let its lease lapse, or that
// have been held longer than maxHold, after the given id and at most limit. It
// moves nothing: what follows is decided by policy and written by Settle, which
// still checks fence, version and owner, so a stale list can overwrite nothing.
func (l *Ledger) Stuck(ctx context.Context, maxHold time.Duration, after delivery.ID, limit int) ([]Claimed, error) {
	var found []Claimed
	p := newPipeline()
	p.Query(stuck, func(rows pgx.Rows) error {
		var owner [16]byte
		c, err := scanClaimed(rows, &owner)
		c.Worker = owner
		found = append(found, c)
		return err
	}, maxHold.Seconds(), [16]byte(after), limit)
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("list stuck work: %w", err)
	}
	return found, nil
}

// Overdue lists deliveries that wait in the queue past their expires_at.
func (l *Ledger) Overdue(ctx context.Context, limit int) ([]delivery.ID, error) {
	var found []delivery.ID
	p := newPipeline()
	p.Query(overdue, func(rows pgx.Rows) error {
		var id [16]byte
		err := rows.Scan(&id)
		found = append(found, id)
		return err
	}, limit)
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("list expired work: %w", err)
	}
	return found, nil
}

// NextLapse tells how long until the earliest lease may lapse; negative: there is
// no worker.
func (l *Ledger) NextLapse(ctx context.Context) (time.Duration, error) { return l.queue.NextLapse(ctx) }

// ForgetWorkers removes workers that lapsed a minute ago and own nothing.
func (l *Ledger) ForgetWorkers(ctx context.Context) error { return l.queue.ForgetWorkers(ctx) }

// Late writes the result of an attempt whose row has been moved by somebody else
// since it was claimed. When nobody has claimed the delivery again (same fence)
// and the attempt is known to have been accepted, the delivery becomes sent after
// all; in every other case the result is kept as evidence beside the attempt.
func (l *Ledger) Late(ctx context.Context, s Settlement) (accepted bool, batch outbox.Batch, err error) {
	batch.ID = newBatchID()
	claimed := s.Claimed // as it was; body may run twice
	err = l.begin(ctx, "late result of "+s.Claimed.ID.String(), func(tx pgx.Tx) error {
		s.Claimed, accepted, batch.Messages = claimed, false, nil
		if s.Claimed.Ordering != "" {
			if _, err := tx.Exec(ctx, lockOrderingKeys, []string{s.Claimed.Tenant}, []string{s.Claimed.Ordering}); err != nil {
				return err
			}
		}
		// The queue row first, then the delivery: the order in which Settle locks.
		var queuedFence int32
		var inWork bool
		err := tx.QueryRow(ctx, lockQueued, [16]byte(s.Claimed.ID)).Scan(&queuedFence, &inWork)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		claimedAgain := err == nil && (inWork || queuedFence != s.Claimed.Fence)
		var state delivery.State
		var version, fence int32
		var attempts int
		err = tx.QueryRow(ctx, lockDelivery, [16]byte(s.Claimed.ID)).Scan(&state, &version, &fence, &attempts)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		accepted = s.Decision.State == delivery.Sent && !claimedAgain && fence == s.Claimed.Fence && delivery.Legal(state, delivery.Sent)
		evidence := s.answer()
		evidence.Verdict = s.Verdict.String()
		if _, err := tx.Exec(ctx, insertLate, [16]byte(s.Claimed.ID), s.Claimed.Fence, max(attempts, 1), s.Claimed.Lane,
			[16]byte(s.Claimed.Worker), s.Claimed.ClaimedAt, evidence); err != nil {
			return err
		}
		if !accepted {
			return nil
		}
		s.Claimed.Version, s.Claimed.Attempts, s.Attempt, s.Cause = version, attempts, false, "late result"
		m, err := s.message()
		if err != nil {
			return err
		}
		batch.Messages = []outbox.Message{m}
		return l.moveOne(ctx, tx, batch, s, version)
	})
	if err != nil {
		return false, outbox.Batch{}, err
	}
	return accepted, batch, nil
}

// moveOne writes one move of a delivery that is locked and not under a lease.
func (l *Ledger) moveOne(ctx context.Context, tx pgx.Tx, batch outbox.Batch, s Settlement, version int32) error {
	m, id := batch.Messages[0], [16]byte(s.Claimed.ID)
	var p pgx.Batch
	p.Queue(deleteQueued, id)
	p.Queue(moveDelivery, id, string(s.Decision.State), version+1, s.answer(), s.Claimed.Fence)
	for _, r := range s.recipients() {
		p.Queue(moveRecipient, id, int16(r.Ordinal), string(r.State), r.Code, r.Text)
	}
	p.Queue(insertEvents, [][16]byte{id}, []int32{version + 1}, []string{string(s.Decision.State)}, []string{m.Subject}, [][]byte{m.Body})
	p.Queue(outbox.Insert, [16]byte(batch.ID), [][16]byte{id}, []int32{version + 1})
	if s.Claimed.Ordering != "" {
		p.Queue(unblock, []string{s.Claimed.Tenant}, []string{s.Claimed.Ordering})
	}
	return tx.SendBatch(ctx, &p).Close()
}

// Expire ends waiting deliveries that are past their expires_at and not in work.
// It answers with the batch to publish and how many it ended.
func (l *Ledger) Expire(ctx context.Context, id delivery.ID) (outbox.Batch, bool, error) {
	return l.endWaiting(ctx, id, delivery.Expired, "expires_at", delivery.Answer{Code: "EXPIRED", Text: "expires_at has passed"}, true)
}

// Cancel calls a delivery back that is not in work and not final; false: it is.
func (l *Ledger) Cancel(ctx context.Context, id delivery.ID, why string) (outbox.Batch, bool, error) {
	return l.endWaiting(ctx, id, delivery.Cancelled, "operator", delivery.Answer{Code: "CANCELLED", Text: delivery.Bound(why)}, false)
}

func (l *Ledger) endWaiting(ctx context.Context, id delivery.ID, to delivery.State, cause string, answer delivery.Answer, onlyOverdue bool) (batch outbox.Batch, ended bool, err error) {
	batch.ID = newBatchID()
	err = l.begin(ctx, string(to)+" "+id.String(), func(tx pgx.Tx) error {
		batch.Messages, ended = nil, false
		s := Settlement{Claimed: Claimed{ID: id}, Cause: cause, Decision: retry.Decision{State: to, Answer: answer}}
		k := &s.Claimed
		var ordering *string
		var custom []byte
		var trace *string
		err := tx.QueryRow(ctx, orderingOf, [16]byte(id)).Scan(&k.Tenant, &ordering)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrNotFound
		}
		if err != nil {
			return err
		}
		if ordering != nil {
			k.Ordering = *ordering
			if _, err := tx.Exec(ctx, lockOrderingKeys, []string{k.Tenant}, []string{k.Ordering}); err != nil {
				return err
			}
		}
		row := tx.QueryRow(ctx, lockWaiting, [16]byte(id), onlyOverdue)
		err = row.Scan(&k.Channel, &k.RequestID, &k.Class, &k.Version, &k.Attempts, &k.Retries, &custom, &trace, &k.Fence)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		k.Custom = custom
		if trace != nil {
			k.Trace = *trace
		}
		m, err := s.message()
		if err != nil {
			return err
		}
		batch.Messages, ended = []outbox.Message{m}, true
		return l.moveOne(ctx, tx, batch, s, k.Version)
	})
	if err != nil {
		return outbox.Batch{}, false, err
	}
	return batch, ended, nil
}
