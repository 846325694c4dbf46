package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/pinned"
	"github.com/posthouse-io/posthouse/pkg/quota"
	"github.com/posthouse-io/posthouse/pkg/transport"
	"github.com/posthouse-io/posthouse/streams"
)

// Acceptance is one request that is ready to be written.
type Acceptance struct {
	ID          delivery.ID
	Tenant      string
	Channel     delivery.Channel
	RequestID   string
	BodyHash    [32]byte
	Class       delivery.Class
	Lane        int32
	Recipients  []string
	Prepared    []byte           // what the transport will send; nil when it could not be prepared
	Raw         []byte           // the request as it came; kept only when it is not prepared
	Failure     *delivery.Answer // not nil: accepted as failed, with its marker code
	SendAt      *time.Time
	ExpiresAt   *time.Time
	OrderingKey string
	Trace       string
	Custom      json.RawMessage
	Hand        bool // a slot is reserved for it: see AcceptHanded

	waits *delivery.Answer // why it waits: its quota is used up
}

// Acceptation is what became of one Acceptance.
type Acceptation struct {
	ID       delivery.ID // the first delivery of this (tenant, request id)
	Fresh    bool        // false: it was there before
	Conflict bool        // it was there before with another body
}

// Accept writes the fresh ones among the requests in one transaction each with
// its key, content, recipients, queue row, event and outbox row, and answers for
// all of them in order. The returned batch is to be handed to the relay (it is
// empty when nothing was fresh). After an error nothing is known; repeat it.
func (l *Ledger) Accept(ctx context.Context, requests []Acceptance) ([]Acceptation, outbox.Batch, error) {
	results, _, batch, err := l.AcceptHanded(ctx, uuid.Nil, requests)
	return results, batch, err
}

// AcceptHanded is Accept with a hand-off: requests marked Hand enter the queue
// leased to the worker, which has a slot reserved for each, and come back as
// claimed, if their lane is open and nothing older waits in it.
func (l *Ledger) AcceptHanded(ctx context.Context, worker uuid.UUID, requests []Acceptance) ([]Acceptation, []Claimed, outbox.Batch, error) {
	a := acceptance{worker: worker, requests: requests}
	accept := func() error { return l.accept(ctx, &a) }
	err := pinned.Again(ctx, accept)
	if err != nil && noPartition(err) {
		if err := l.ensureMonths(ctx, requests); err != nil {
			return nil, nil, outbox.Batch{}, err
		}
		err = pinned.Again(ctx, accept)
	}
	if err != nil {
		return nil, nil, outbox.Batch{}, fmt.Errorf("accept %d requests: %w", len(requests), err)
	}
	return a.results, a.handed, a.batch, nil
}

// AcceptIn writes one delivery of our own making in the transaction of its occasion.
// Its key must be new, and it draws on no quota.
func (l *Ledger) AcceptIn(ctx context.Context, tx pgx.Tx, r Acceptance) (outbox.Batch, error) {
	a := acceptance{requests: []Acceptance{r}, results: make([]Acceptation, 1), batch: outbox.Batch{ID: newBatchID()}}
	fresh, err := insertKeys(ctx, tx, a.requests, a.results, func(*pgx.Batch) {})
	if err == nil && len(fresh) == 0 {
		err = fmt.Errorf("request %s of %s was accepted before", r.RequestID, r.Tenant)
	}
	if err == nil {
		err = a.insert(ctx, tx, fresh, 0)
	}
	if err != nil {
		return outbox.Batch{}, fmt.Errorf("accept %s: %w", r.ID, err)
	}
	return a.batch, nil
}

// acceptance is one batch on its way into the book.
type acceptance struct {
	worker   uuid.UUID
	requests []Acceptance
	results  []Acceptation
	handed   []Claimed
	batch    outbox.Batch
}

func (l *Ledger) accept(ctx context.Context, a *acceptance) error {
	a.results, a.handed, a.batch = make([]Acceptation, len(a.requests)), nil, outbox.Batch{ID: newBatchID()}
	tx, err := l.db.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	var charge quota.Charge
	fresh, err := insertKeys(ctx, tx, a.requests, a.results, func(b *pgx.Batch) {
		for _, r := range a.requests {
			if r.Failure == nil && l.charging {
				charge.Ask(l.bucket(r.Tenant, r.Channel), 1)
			}
		}
		charge.Queue(b, l.quotas)
	})
	if err != nil {
		return err
	}
	var notices outbox.Batch
	if len(fresh) > 0 {
		prepareLane, err := l.admit(ctx, tx, &charge, fresh, &notices)
		if err != nil {
			return err
		}
		if err := a.insert(ctx, tx, fresh, prepareLane); err != nil {
			return err
		}
	} else if err := l.refundAll(ctx, tx, &charge); err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	if len(notices.Messages) > 0 {
		l.notice(notices)
	}
	return nil
}

// insertKeys claims the (tenant, request id) of each request and returns those
// that were never seen; for the others it reads what was seen first.
func insertKeys(ctx context.Context, tx pgx.Tx, requests []Acceptance, results []Acceptation, also func(*pgx.Batch)) ([]Acceptance, error) {
	type key struct{ tenant, id string }
	first := make(map[key]int, len(requests)) // a repeat within the batch follows its first
	var in struct {
		tenants, requestIDs []string
		hashes              [][]byte
		ids                 []delivery.ID
	}
	for i, r := range requests {
		k := key{r.Tenant, r.RequestID}
		if _, repeated := first[k]; repeated {
			continue
		}
		first[k] = i
		in.tenants, in.requestIDs = append(in.tenants, r.Tenant), append(in.requestIDs, r.RequestID)
		in.hashes, in.ids = append(in.hashes, r.BodyHash[:]), append(in.ids, r.ID)
	}
	p := newPipeline()
	inserted := make(map[key]bool, len(requests))
	p.Query(insertRequestKeys, func(rows pgx.Rows) error {
		var k key
		if err := rows.Scan(&k.tenant, &k.id); err != nil {
			return err
		}
		inserted[k] = true
		return nil
	}, in.tenants, in.requestIDs, in.hashes, ids(in.ids))
	also(&p.Batch)
	if err := tx.SendBatch(ctx, &p.Batch).Close(); err != nil {
		return nil, err
	}
	seen := make(map[key]Acceptation)
	hashes := make(map[key][]byte)
	if len(inserted) < len(in.tenants) {
		rows, err := tx.Query(ctx, selectRequestKeys, in.tenants, in.requestIDs)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var k key
			var hash []byte
			var id [16]byte
			if err := rows.Scan(&k.tenant, &k.id, &hash, &id); err != nil {
				rows.Close()
				return nil, err
			}
			seen[k], hashes[k] = Acceptation{ID: id}, hash
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	var fresh []Acceptance
	for i, r := range requests {
		k := key{r.Tenant, r.RequestID}
		j := first[k]
		switch {
		case inserted[k] && i == j:
			results[i] = Acceptation{ID: r.ID, Fresh: true}
			fresh = append(fresh, r)
		case inserted[k]:
			results[i] = Acceptation{ID: requests[j].ID, Conflict: requests[j].BodyHash != r.BodyHash}
		case hashes[k] == nil: // neither inserted nor there: retention has just taken the key
			return nil, fmt.Errorf("the key of request %d has gone meanwhile", i)
		default:
			results[i] = Acceptation{ID: seen[k].ID, Conflict: !bytes.Equal(hashes[k], r.BodyHash[:])}
		}
	}
	return fresh, nil
}

// insert writes all that belongs to fresh requests, column by column.
func (a *acceptance) insert(ctx context.Context, tx pgx.Tx, fresh []Acceptance, prepareLane int32) error {
	now := time.Now()
	var c acceptColumns
	messages := make([]outbox.Message, len(fresh))
	for i := range fresh {
		r := clean(fresh[i])
		r.Hand = r.Hand && a.worker != uuid.Nil
		ev := delivery.Event{ID: r.ID, Version: 1, State: delivery.Pending, Tenant: r.Tenant, Channel: r.Channel, RequestID: r.RequestID,
			Class: r.Class.String(), At: now, Cause: "accepted", DueAt: r.SendAt, Custom: r.Custom}
		switch {
		case r.Failure != nil:
			ev.State, ev.Cause, ev.Answer, ev.DueAt = delivery.Failed, "cannot be prepared", r.Failure, nil
		case r.waits != nil:
			ev.Cause, ev.Answer, r.Lane = "accepted; its quota is used up", r.waits, prepareLane
		}
		body, err := ev.Encode()
		if err != nil {
			return err
		}
		messages[i] = outbox.Message{ID: ev.Event, Subject: streams.Event(streams.KindDelivery, string(ev.State), string(r.Channel), r.Tenant), Body: body, Trace: r.Trace}
		fresh[i] = r
		c.add(&fresh[i], ev.State, messages[i])
	}
	p := newPipeline()
	if c.isOrdered() {
		p.Exec(lockOrderingKeys, c.queueTenants, c.queueOrdering)
	}
	p.Exec(insertDeliveries, c.ids, c.tenants, c.channels, c.requestIDs, c.classes, c.lanes, c.states, c.prepared, c.expires, c.ordering, c.traces, c.custom, c.answers)
	p.Exec(insertContents, c.ids, c.requests, c.contents)
	p.Exec(insertRecipients, c.recipientIDs, c.ordinals, c.addresses)
	handed := make(map[delivery.ID]handing)
	p.Query(insertQueue, func(rows pgx.Rows) error {
		var id [16]byte
		var claimedAt *time.Time
		var h handing
		err := rows.Scan(&id, &claimedAt, &h.dueAt)
		if claimedAt != nil {
			h.claimedAt = *claimedAt
			handed[id] = h
		}
		return err
	}, c.queued, c.queueLanes, c.queueTenants, c.queueClasses, c.dues, c.queueExpires, c.queueOrdering, [16]byte(a.worker), c.hands)
	p.Exec(insertEvents, c.ids, c.versions, c.states, c.subjects, c.events)
	p.Exec(outbox.Insert, [16]byte(a.batch.ID), c.ids, c.versions)
	if err := tx.SendBatch(ctx, &p.Batch).Close(); err != nil {
		return err
	}
	a.batch.Messages = messages
	for i := range fresh {
		if h, ok := handed[fresh[i].ID]; ok {
			a.handed = append(a.handed, fresh[i].claimed(a.worker, h))
		}
	}
	return nil
}

// handing is what the database says of a row that it has leased at once.
type handing struct{ claimedAt, dueAt time.Time }

// claimed is the request as a claim would have read it back.
func (r *Acceptance) claimed(worker uuid.UUID, h handing) Claimed {
	c := Claimed{ID: r.ID, Lane: r.Lane, Tenant: r.Tenant, Class: r.Class, Worker: worker, Fence: 1, Version: 1, ClaimedAt: h.claimedAt, DueAt: h.dueAt,
		ExpiresAt: r.ExpiresAt, Expired: r.ExpiresAt != nil && !r.ExpiresAt.After(h.claimedAt), Channel: r.Channel, RequestID: r.RequestID, State: delivery.Pending,
		IsPrepared: r.Prepared != nil, Custom: r.Custom, Trace: r.Trace, Prepared: r.Prepared, Ordering: r.OrderingKey,
		Recipients: make([]transport.Recipient, len(r.Recipients))}
	for i, address := range r.Recipients {
		c.Recipients[i] = transport.Recipient{Ordinal: i, Address: address}
	}
	return c
}

// acceptColumns is a batch of acceptances turned into the arrays that the
// insert statements unnest.
type acceptColumns struct {
	ids                                   [][16]byte
	tenants, channels, requestIDs, states []string
	classes                               []int16
	lanes, versions                       []int32
	prepared                              []bool
	expires                               []*time.Time
	ordering, traces                      []*string
	custom, answers                       [][]byte
	requests, contents                    [][]byte
	recipientIDs                          [][16]byte
	ordinals                              []int16
	addresses                             []string
	queued                                [][16]byte
	queueLanes                            []int32
	queueTenants                          []string
	queueClasses                          []int16
	dues, queueExpires                    []*time.Time
	queueOrdering                         []*string
	hands                                 []bool
	subjects                              []string
	events                                [][]byte
}

func (c *acceptColumns) add(r *Acceptance, state delivery.State, m outbox.Message) {
	c.ids, c.tenants, c.channels = append(c.ids, r.ID), append(c.tenants, r.Tenant), append(c.channels, string(r.Channel))
	c.requestIDs, c.classes, c.lanes = append(c.requestIDs, r.RequestID), append(c.classes, int16(r.Class)), append(c.lanes, r.Lane)
	c.states, c.prepared, c.expires = append(c.states, string(state)), append(c.prepared, r.Prepared != nil), append(c.expires, r.ExpiresAt)
	c.ordering, c.traces = append(c.ordering, orNull(r.OrderingKey)), append(c.traces, orNull(r.Trace))
	c.custom, c.answers = append(c.custom, r.Custom), append(c.answers, encodeAnswer(cmp.Or(r.Failure, r.waits)))
	raw := r.Raw
	if r.Prepared != nil {
		raw = nil
	}
	c.requests, c.contents = append(c.requests, raw), append(c.contents, r.Prepared)
	c.versions, c.subjects, c.events = append(c.versions, 1), append(c.subjects, m.Subject), append(c.events, m.Body)
	for i, address := range r.Recipients {
		c.recipientIDs, c.ordinals, c.addresses = append(c.recipientIDs, r.ID), append(c.ordinals, int16(i)), append(c.addresses, address)
	}
	if state.Final() {
		return
	}
	c.queued, c.queueLanes, c.queueTenants = append(c.queued, r.ID), append(c.queueLanes, r.Lane), append(c.queueTenants, r.Tenant)
	c.queueClasses, c.dues, c.queueExpires = append(c.queueClasses, int16(r.Class)), append(c.dues, r.SendAt), append(c.queueExpires, r.ExpiresAt)
	c.queueOrdering, c.hands = append(c.queueOrdering, orNull(r.OrderingKey)), append(c.hands, r.Hand)
}

// storable gives a text that the type text takes, otherwise unchanged.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\ufffd"), "\x00", "\ufffd")
}

// clean makes foreign text storable: one NUL byte would have the database refuse
// the batch, again and again, and all its neighbours with it. What identifies
// (tenant, request id, ordering key) has been checked where it was decoded.
func clean(r Acceptance) Acceptance {
	if !delivery.ValidTrace(r.Trace) {
		r.Trace = ""
	}
	if r.Failure != nil {
		failure := r.Failure.Bounded()
		r.Failure = &failure
	}
	r.Recipients = slices.Clone(r.Recipients)
	for i, address := range r.Recipients {
		r.Recipients[i] = storable(address)
	}
	return r
}

func (c *acceptColumns) isOrdered() bool {
	return slices.ContainsFunc(c.queueOrdering, func(k *string) bool { return k != nil })
}

func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// encodeAnswer gives the JSON that is stored, nil for none.
func encodeAnswer(a *delivery.Answer) []byte {
	if a == nil {
		return nil
	}
	b, err := json.Marshal(a)
	if err != nil { // strings only: cannot fail
		return nil
	}
	return b
}
