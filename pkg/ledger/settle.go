package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/queue"
	"github.com/posthouse-io/posthouse/pkg/retry"
	"github.com/posthouse-io/posthouse/streams"
)

// Settlement is what follows from one attempt (or from its end without one).
type Settlement struct {
	Claimed  Claimed
	Decision retry.Decision
	Verdict  delivery.Verdict // of the attempt
	Attempt  bool             // false: the move costs no attempt and leaves no attempt row (expired)
	Cause    string
	Peer     string // who answered
	RemoteID string
}

// Settled says what became of one Settlement.
type Settled string

const (
	Moved   Settled = "moved"   // written now
	Already Settled = "already" // was in the book: an earlier commit whose answer was lost
	Stale   Settled = "stale"   // somebody else has moved it since: see Late
)

// Settle writes many moves in one transaction, each only if its row is still as
// it was claimed (fence, version, owner). The batch is to be handed to the relay.
// After an error nothing is known; repeat it.
func (l *Ledger) Settle(ctx context.Context, settlements []Settlement) ([]Settled, outbox.Batch, error) {
	batch := outbox.Batch{ID: newBatchID()}
	c := settleColumns{}
	messages := make([]outbox.Message, len(settlements))
	place := make(map[delivery.ID]int, len(settlements))
	for i := range settlements {
		m, err := c.add(&settlements[i])
		if err != nil {
			return nil, batch, err
		}
		messages[i], place[settlements[i].Claimed.ID] = m, i
	}
	var freed []claim.Group
	results := make([]Settled, len(settlements))
	err := l.insist(ctx, func(p *pipeline) {
		clear(results)
		if len(c.ordering) > 0 {
			p.Exec(lockOrderingKeys, c.orderingTenants, c.ordering)
		}
		p.Query(settleStatement(), func(rows pgx.Rows) error {
			var id [16]byte
			if err := rows.Scan(&id); err != nil {
				return err
			}
			results[place[id]] = Moved
			return nil
		}, [16]byte(batch.ID), c.ids, c.fences, c.versions, c.workers, c.claimedAt, c.states, c.delays,
			c.attempts, c.retries, c.verdicts, c.answers, c.recipients, c.subjects, c.bodies)
		if len(c.ordering) > 0 {
			freed = nil
			p.Query(unblock, func(rows pgx.Rows) error {
				var g claim.Group
				err := rows.Scan(&g.Lane, &g.Tenant, &g.Class)
				freed = append(freed, g)
				return err
			}, c.orderingTenants, c.ordering)
		}
	})
	if err != nil {
		return nil, outbox.Batch{ID: batch.ID}, fmt.Errorf("settle %d deliveries: %w", len(settlements), err)
	}
	if len(freed) > 0 {
		l.ready(freed...)
	}
	for i, r := range results {
		if r == Moved {
			batch.Messages = append(batch.Messages, messages[i])
		}
	}
	return results, batch, l.findSettled(ctx, settlements, results)
}

// findSettled tells rows that an earlier, unanswered commit has moved from rows
// that somebody else has.
func (l *Ledger) findSettled(ctx context.Context, settlements []Settlement, results []Settled) error {
	var c settleColumns
	open := make(map[delivery.ID]int)
	for i, r := range results {
		if r == "" {
			results[i] = Stale
			s := &settlements[i]
			open[s.Claimed.ID] = i
			c.ids, c.fences, c.versions = append(c.ids, s.Claimed.ID), append(c.fences, s.Claimed.Fence), append(c.versions, s.Claimed.Version)
			c.workers, c.verdicts, c.states = append(c.workers, s.Claimed.Worker), append(c.verdicts, s.verdict()), append(c.states, string(s.Decision.State))
		}
	}
	if len(open) == 0 {
		return nil
	}
	p := newPipeline()
	ours := func(rows pgx.Rows) error {
		var id [16]byte
		err := rows.Scan(&id)
		if i, ok := open[id]; ok {
			results[i] = Already
		}
		return err
	}
	p.Query(settledAttempts, ours, c.ids, c.fences, c.workers, c.verdicts)
	p.Query(settledWithoutAttempt, ours, c.ids, c.fences, c.versions, c.verdicts, c.states)
	if err := l.run(ctx, p); err != nil {
		return fmt.Errorf("look up %d settled attempts: %w", len(open), err)
	}
	return nil
}

// GiveBack returns deliveries whose attempt never began: nothing is counted.
func (l *Ledger) GiveBack(ctx context.Context, settlements []Settlement) error {
	rows := make([]queue.Unused, len(settlements))
	for i := range settlements {
		k := &settlements[i].Claimed
		rows[i] = queue.Unused{ID: k.ID, Fence: k.Fence, Worker: k.Worker, Delay: settlements[i].Decision.Delay}
	}
	return l.queue.GiveBack(ctx, rows)
}

// settleColumns is a batch of settlements turned into the arrays that the
// statements unnest.
type settleColumns struct {
	ids, workers                [][16]byte
	fences, versions            []int32
	claimedAt                   []time.Time
	states, verdicts, subjects  []string
	delays                      []float64
	attempts, retries           []int32
	answers, recipients, bodies [][]byte
	ordering, orderingTenants   []string
}

func (c *settleColumns) add(s *Settlement) (outbox.Message, error) {
	m, err := s.message()
	if err != nil {
		return m, err
	}
	answer, err := json.Marshal(s.answer())
	if err != nil {
		return m, fmt.Errorf("settle %s: %w", s.Claimed.ID, err)
	}
	recipients := []byte("[]")
	if len(s.Decision.Recipients) > 0 && !s.plain() {
		if recipients, err = json.Marshal(s.recipients()); err != nil {
			return m, fmt.Errorf("settle %s: %w", s.Claimed.ID, err)
		}
	}
	k := &s.Claimed
	c.ids, c.fences, c.versions = append(c.ids, k.ID), append(c.fences, k.Fence), append(c.versions, k.Version)
	c.workers, c.claimedAt = append(c.workers, k.Worker), append(c.claimedAt, k.ClaimedAt)
	c.states, c.delays = append(c.states, string(s.Decision.State)), append(c.delays, s.Decision.Delay.Seconds())
	c.attempts, c.retries = append(c.attempts, int32(s.attempts())), append(c.retries, int32(s.retries()))
	c.verdicts, c.answers, c.recipients = append(c.verdicts, s.verdict()), append(c.answers, answer), append(c.recipients, recipients)
	c.subjects, c.bodies = append(c.subjects, m.Subject), append(c.bodies, m.Body)
	if k.Ordering != "" && s.Decision.State.Final() {
		c.orderingTenants, c.ordering = append(c.orderingTenants, k.Tenant), append(c.ordering, k.Ordering)
	}
	return m, nil
}

// plain tells the common case: one recipient, accepted at last. Its row is left as
// it is, since under a delivery that is sent "pending" can only mean accepted; its
// answer is the delivery's.
func (s *Settlement) plain() bool {
	return s.Decision.State == delivery.Sent && len(s.Claimed.Recipients) == 1 && s.Claimed.Accepted == 0 &&
		len(s.Decision.Recipients) == 1 && s.Decision.Recipients[0].Verdict == delivery.Accepted
}

// storedAnswer is the JSON of attempt.answer and delivery.answer.
type storedAnswer struct {
	delivery.Answer
	Peer     string `json:"peer,omitempty"`
	RemoteID string `json:"remote_id,omitempty"`
	Verdict  string `json:"verdict,omitempty"` // of a late result only: elsewhere it is a column
}

func (s *Settlement) answer() storedAnswer {
	return storedAnswer{Answer: s.Decision.Answer.Bounded(), Peer: delivery.Bound(s.Peer), RemoteID: delivery.Bound(s.RemoteID)}
}

func (s *Settlement) attempts() int {
	if s.Attempt {
		return s.Claimed.Attempts + 1
	}
	return s.Claimed.Attempts
}

func (s *Settlement) retries() int {
	if s.Decision.State == delivery.Retry {
		return s.Claimed.Retries + 1
	}
	return s.Claimed.Retries
}

// verdict is the word of the attempt row; none: no attempt was made.
func (s *Settlement) verdict() string {
	if !s.Attempt {
		return "none"
	}
	return s.Verdict.String()
}

func (s *Settlement) recipients() []delivery.RecipientStatus {
	out := make([]delivery.RecipientStatus, len(s.Decision.Recipients))
	for i, r := range s.Decision.Recipients {
		state := delivery.RecipientRefused
		if r.Verdict == delivery.Accepted {
			state = delivery.RecipientAccepted
		}
		out[i] = delivery.RecipientStatus{Ordinal: r.Ordinal, State: state, Code: delivery.Bound(r.Answer.Code), Text: delivery.Bound(r.Answer.Text)}
	}
	return out
}

// message is the event of the move.
func (s *Settlement) message() (outbox.Message, error) {
	k := &s.Claimed
	now := time.Now().UTC()
	ev := delivery.Event{ID: k.ID, Version: int(k.Version) + 1, State: s.Decision.State, Tenant: k.Tenant, Channel: k.Channel, RequestID: k.RequestID,
		Class: k.Class.String(), At: now, Attempts: s.attempts(), Cause: s.Cause, Recipients: s.recipients(), Custom: k.Custom}
	if answer := s.Decision.Answer.Bounded(); answer != (delivery.Answer{}) {
		ev.Answer = &answer
	}
	if s.Decision.State == delivery.Retry {
		due := now.Add(s.Decision.Delay)
		ev.DueAt = &due
	}
	body, err := ev.Encode()
	return outbox.Message{ID: ev.Event, Subject: streams.Event(streams.KindDelivery, string(ev.State), string(k.Channel), k.Tenant), Body: body, Trace: k.Trace}, err
}
