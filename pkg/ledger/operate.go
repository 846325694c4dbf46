package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/audit"
	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/streams"
)

// commandPage is how many deliveries one transaction of a command moves.
const commandPage = 500

// Carried is what a command has done: the report, the events to hand to the
// relay (one batch per transaction), and where ready work has appeared.
type Carried struct {
	delivery.CommandReport
	Events []outbox.Batch
	Groups []claim.Group
}

// order is one kind of command, applied to many deliveries alike.
type order struct {
	action  string // as the audit names it
	to      delivery.State
	turn    [2]delivery.RecipientState    // recipients in the first state go to the second; empty: none
	judge   func(subject) delivery.Effect // Done: it is to be moved
	answer  *delivery.Answer              // of the move; nil keeps the last one
	expiry  delivery.Expiry
	lane    int32 // where the unprepared go, for a retry
	warrant delivery.Warrant
}

// subject is one delivery under both locks, its queue row's (when it has one) and
// its own.
type subject struct {
	id               delivery.ID
	tenant           string
	channel          delivery.Channel
	requestID        string
	class            delivery.Class
	lane             int32
	state            delivery.State
	version, fence   int32
	attempts         int
	retries          int32
	prepared         bool
	expiresAt        *time.Time
	expired          bool
	ordering         string
	custom           json.RawMessage
	trace            *string
	queue            string // state of the queue row; empty: it has none
	due              bool
	waiting, refused []int // ordinals
	recipients       int
}

// command carries an order out on the given deliveries, a page per transaction,
// each with its audit. After an error earlier pages stand; repeating is safe.
func (l *Ledger) command(ctx context.Context, o order, named []delivery.ID) (Carried, error) {
	var all Carried
	unique := distinct(named)
	for page := range slices.Chunk(unique, commandPage) {
		var done carrying
		err := l.begin(ctx, fmt.Sprintf("%s %d deliveries", o.action, len(page)), func(tx pgx.Tx) (err error) {
			if done, err = carry(ctx, tx, o, page); err != nil {
				return err
			}
			targets, results := make([]string, len(page)), make([]string, len(page))
			for i, id := range page {
				targets[i], results[i] = id.String(), string(done.effects[id])
			}
			return audit.Write(ctx, tx, o.warrant, o.action, targets, results)
		})
		if err != nil {
			return all, err
		}
		all.add(page, done)
	}
	return all, nil
}

func (c *Carried) add(page []delivery.ID, done carrying) {
	for _, id := range page {
		c.Add(id, done.effects[id])
	}
	c.Events = append(c.Events, done.events...)
	for _, g := range done.groups {
		if !slices.Contains(c.Groups, g) {
			c.Groups = append(c.Groups, g)
		}
	}
}

// carrying is what one transaction does.
type carrying struct {
	effects map[delivery.ID]delivery.Effect
	events  []outbox.Batch
	groups  []claim.Group
}

// and joins two halves of a page.
func (c carrying) and(o carrying) carrying {
	maps.Copy(c.effects, o.effects)
	c.events, c.groups = append(c.events, o.events...), append(c.groups, o.groups...)
	return c
}

// carry locks the deliveries, judges each, and moves those that are to be moved
// with their events and one outbox row.
func carry(ctx context.Context, tx pgx.Tx, o order, named []delivery.ID) (carrying, error) {
	done := carrying{effects: make(map[delivery.ID]delivery.Effect, len(named))}
	subjects, err := lockSubjects(ctx, tx, named)
	if err != nil {
		return done, err
	}
	for _, id := range named {
		done.effects[id] = delivery.EffectNotFound
	}
	var moving []subject
	for _, s := range subjects {
		effect := o.judge(s)
		done.effects[s.id] = effect
		if effect.Done() {
			moving = append(moving, s)
		}
	}
	if len(moving) == 0 {
		return done, nil
	}
	for _, part := range o.parts(moving) {
		batch, freed, err := move(ctx, tx, part.order, part.subjects)
		if err != nil {
			return done, err
		}
		done.events, done.groups = append(done.events, batch), append(done.groups, freed...)
	}
	for _, s := range moving {
		if o.to == delivery.Retry {
			done.groups = append(done.groups, claim.Group{Lane: o.laneOf(s), Tenant: s.tenant, Class: int16(s.class)})
		}
	}
	return done, nil
}

// part is the share of an order that ends alike.
type part struct {
	order
	subjects []subject
}

// parts keeps the rule that a delivery is sent when nobody waits and somebody has
// accepted it: a held one whose last recipients are given up is still sent.
func (o order) parts(moving []subject) []part {
	if o.to != delivery.Failed {
		return []part{{o, moving}}
	}
	var failed, sent []subject
	for _, s := range moving {
		if s.recipients > len(s.waiting)+len(s.refused) {
			sent = append(sent, s)
		} else {
			failed = append(failed, s)
		}
	}
	partly := o
	partly.to = delivery.Sent
	return slices.DeleteFunc([]part{{o, failed}, {partly, sent}}, func(p part) bool { return len(p.subjects) == 0 })
}

// lockSubjects locks in the order of every writer: ordering keys, queue rows,
// deliveries. A delivery that has entered the queue between the two is looked
// for once more: two operators may retry the same one at the same time.
func lockSubjects(ctx context.Context, tx pgx.Tx, named []delivery.ID) ([]subject, error) {
	sorted := slices.SortedFunc(slices.Values(named), func(a, b delivery.ID) int { return bytes.Compare(a[:], b[:]) })
	if err := lockKeysOf(ctx, tx, sorted); err != nil {
		return nil, err
	}
	at := make(map[delivery.ID]int, len(sorted))
	queued := make(map[delivery.ID]subject, len(sorted))
	var found []subject
	readQueue := func(rows pgx.Rows) error {
		var id [16]byte
		var s subject
		err := rows.Scan(&id, &s.queue, &s.due, &s.fence)
		queued[id] = s
		return err
	}
	p := &pipeline{}
	p.Query(lockQueuedRows, readQueue, ids(sorted))
	p.Query(lockDeliveries, func(rows pgx.Rows) error {
		s, err := scanSubject(rows)
		at[s.id] = len(found)
		found = append(found, s)
		return err
	}, ids(sorted))
	p.Query(recipientsOf, func(rows pgx.Rows) error {
		var id [16]byte
		var ordinal int
		var state delivery.RecipientState
		if err := rows.Scan(&id, &ordinal, &state); err != nil {
			return err
		}
		if i, ok := at[id]; ok {
			found[i].addRecipient(ordinal, state)
		}
		return nil
	}, ids(sorted))
	if err := tx.SendBatch(ctx, &p.Batch).Close(); err != nil {
		return nil, err
	}
	var strays []delivery.ID
	for _, s := range found {
		if _, ok := queued[s.id]; !ok && !s.state.Final() {
			strays = append(strays, s.id)
		}
	}
	if len(strays) > 0 {
		p := &pipeline{}
		p.Query(lockQueuedRows, readQueue, ids(strays))
		if err := tx.SendBatch(ctx, &p.Batch).Close(); err != nil {
			return nil, err
		}
	}
	for i := range found {
		if q, ok := queued[found[i].id]; ok {
			found[i].queue, found[i].due, found[i].fence = q.queue, q.due, max(found[i].fence, q.fence)
		}
	}
	return found, nil
}

func lockKeysOf(ctx context.Context, tx pgx.Tx, sorted []delivery.ID) error {
	var tenants, keys []string
	p := &pipeline{}
	p.Query(orderedAmong, func(rows pgx.Rows) error {
		var tenant, key string
		err := rows.Scan(&tenant, &key)
		tenants, keys = append(tenants, tenant), append(keys, key)
		return err
	}, ids(sorted))
	if err := tx.SendBatch(ctx, &p.Batch).Close(); err != nil || len(keys) == 0 {
		return err
	}
	_, err := tx.Exec(ctx, lockOrderingKeys, tenants, keys)
	return err
}

func scanSubject(rows pgx.Rows) (subject, error) {
	var s subject
	var id [16]byte
	var ordering *string
	var custom []byte
	err := rows.Scan(&id, &s.tenant, &s.channel, &s.requestID, &s.class, &s.lane, &s.state, &s.version, &s.fence, &s.attempts, &s.retries, &s.prepared,
		&s.expiresAt, &s.expired, &ordering, &custom, &s.trace)
	s.id, s.custom = id, custom
	if ordering != nil {
		s.ordering = *ordering
	}
	return s, err
}

func (s *subject) addRecipient(ordinal int, state delivery.RecipientState) {
	s.recipients++
	switch state {
	case delivery.RecipientPending:
		s.waiting = append(s.waiting, ordinal)
	case delivery.RecipientRefused:
		s.refused = append(s.refused, ordinal)
	}
}

// laneOf is where a delivery goes under the order.
func (o order) laneOf(s subject) int32 {
	if o.to == delivery.Retry && !s.prepared {
		return o.lane
	}
	return s.lane
}

// recipientMove says which recipients the order changes, and how.
func (o order) recipientMove(s subject) (ordinals []int, to delivery.RecipientStatus) {
	to.State = o.turn[1]
	if o.answer != nil {
		to.Code, to.Text = o.answer.Code, o.answer.Text
	}
	switch o.turn[0] {
	case delivery.RecipientRefused:
		return s.refused, to
	case delivery.RecipientPending:
		return s.waiting, to
	}
	return nil, to
}

func (o order) message(s subject) (outbox.Message, error) {
	now := time.Now().UTC()
	ev := delivery.Event{ID: s.id, Version: int(s.version) + 1, State: o.to, Tenant: s.tenant, Channel: s.channel, RequestID: s.requestID, Class: s.class.String(),
		At: now, Attempts: s.attempts, Cause: "operator", Answer: o.answer, Custom: s.custom}
	if o.to == delivery.Retry {
		ev.DueAt = &now
	}
	ordinals, status := o.recipientMove(s)
	for _, ordinal := range ordinals {
		status.Ordinal = ordinal
		ev.Recipients = append(ev.Recipients, status)
	}
	body, err := ev.Encode()
	m := outbox.Message{ID: ev.Event, Subject: streams.Event(streams.KindDelivery, string(o.to), string(s.channel), s.tenant), Body: body}
	if s.trace != nil {
		m.Trace = *s.trace
	}
	return m, err
}

// move writes what the order makes of the subjects, and tells where that has made
// blocked work ready.
func move(ctx context.Context, tx pgx.Tx, o order, moving []subject) (outbox.Batch, []claim.Group, error) {
	var c moveColumns
	batch := outbox.Batch{ID: newBatchID(), Messages: make([]outbox.Message, len(moving))}
	for i, s := range moving {
		m, err := o.message(s)
		if err != nil {
			return batch, nil, err
		}
		batch.Messages[i] = m
		c.add(o, s, m)
	}
	p := &pipeline{}
	if len(c.hastened.ids) > 0 {
		p.Exec(hasten, c.hastened.ids, c.hastened.versions, c.hastened.expires)
	}
	if q := &c.requeued; len(q.ids) > 0 {
		p.Exec(requeue, q.ids, q.lanes, q.tenants, q.classes, q.fences, q.versions, q.expires, q.ordering)
	}
	if len(c.left) > 0 {
		p.Exec(dequeue, c.left)
	}
	p.Exec(moveDeliveries, string(o.to), c.ids, c.versions, c.fences, c.retries, c.lanes, c.expires, encodeAnswer(o.answer))
	if _, to := o.recipientMove(subject{}); to.State != "" {
		p.Exec(moveRecipients, c.ids, string(o.turn[0]), string(to.State), to.Code, to.Text)
	}
	p.Exec(insertEvents, c.ids, c.versions, c.states, c.subjects, c.bodies)
	p.Exec(outbox.Insert, [16]byte(batch.ID), c.ids, c.versions)
	var freed []claim.Group
	if len(c.freed) > 0 {
		p.Query(unblock, func(rows pgx.Rows) error {
			var g claim.Group
			err := rows.Scan(&g.Lane, &g.Tenant, &g.Class)
			freed = append(freed, g)
			return err
		}, c.freedTenants, c.freed)
	}
	return batch, freed, tx.SendBatch(ctx, &p.Batch).Close()
}

// moveColumns is a page of moves turned into the arrays that the statements unnest.
type moveColumns struct {
	rows
	retries          []int32
	states, subjects []string
	bodies           [][]byte

	hastened, requeued  rows
	left                [][16]byte
	freedTenants, freed []string // ordering keys whose head may have gone
}

type rows struct {
	ids                     [][16]byte
	versions, fences, lanes []int32
	expires                 []*time.Time
	tenants                 []string
	classes                 []int16
	ordering                []*string
}

func (r *rows) add(s subject, lane int32, expires *time.Time) {
	r.ids, r.versions, r.fences, r.lanes = append(r.ids, s.id), append(r.versions, s.version+1), append(r.fences, s.fence), append(r.lanes, lane)
	r.expires, r.tenants, r.classes = append(r.expires, expires), append(r.tenants, s.tenant), append(r.classes, int16(s.class))
	r.ordering = append(r.ordering, orNull(s.ordering))
}

func (c *moveColumns) add(o order, s subject, m outbox.Message) {
	expires := s.expiresAt
	if o.expiry.Changes() {
		expires = o.expiry.ExpiresAt
	}
	lane, retries := o.laneOf(s), s.retries
	switch {
	case o.to == delivery.Retry && s.queue != "":
		retries++
		c.hastened.add(s, lane, expires)
	case o.to == delivery.Retry:
		retries++
		c.requeued.add(s, lane, expires)
	default:
		c.left = append(c.left, s.id)
		if s.ordering != "" {
			c.freedTenants, c.freed = append(c.freedTenants, s.tenant), append(c.freed, s.ordering)
		}
	}
	c.rows.add(s, lane, expires)
	c.retries, c.states, c.subjects, c.bodies = append(c.retries, retries), append(c.states, string(o.to)), append(c.subjects, m.Subject), append(c.bodies, m.Body)
}

// distinct keeps the first of each.
func distinct[T comparable](in []T) []T {
	seen := make(map[T]bool, len(in))
	out := make([]T, 0, len(in))
	for _, v := range in {
		if !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}
