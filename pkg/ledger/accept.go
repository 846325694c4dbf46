package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/outbox"
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
	Request     []byte           // the raw request, kept only when not prepared
	Failure     *delivery.Answer // not nil: accepted as failed, with its marker code
	SendAt      *time.Time
	ExpiresAt   *time.Time
	OrderingKey string
	Trace       string
	Custom      json.RawMessage
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
	var results []Acceptation
	var batch outbox.Batch
	accept := func() (err error) {
		results, batch, err = l.accept(ctx, requests)
		return err
	}
	err := again(ctx, accept)
	if err != nil && noPartition(err) {
		if err := l.ensureMonths(ctx, requests); err != nil {
			return nil, outbox.Batch{}, err
		}
		err = again(ctx, accept)
	}
	if err != nil {
		return nil, outbox.Batch{}, fmt.Errorf("accept %d requests: %w", len(requests), err)
	}
	return results, batch, nil
}

func (l *Ledger) accept(ctx context.Context, requests []Acceptance) ([]Acceptation, outbox.Batch, error) {
	results := make([]Acceptation, len(requests))
	batch := outbox.Batch{ID: newBatchID()}
	tx, err := l.db.Begin(ctx)
	if err != nil {
		return nil, batch, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	fresh, err := insertKeys(ctx, tx, requests, results)
	if err != nil {
		return nil, batch, err
	}
	if len(fresh) > 0 {
		if batch.Messages, err = insertFresh(ctx, tx, batch, fresh); err != nil {
			return nil, batch, err
		}
	}
	return results, batch, tx.Commit(ctx)
}

// insertKeys claims the (tenant, request id) of each request and returns those
// that were never seen; for the others it reads what was seen first.
func insertKeys(ctx context.Context, tx pgx.Tx, requests []Acceptance, results []Acceptation) ([]Acceptance, error) {
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
	p.query(insertRequestKeys, func(rows pgx.Rows) error {
		var k key
		if err := rows.Scan(&k.tenant, &k.id); err != nil {
			return err
		}
		inserted[k] = true
		return nil
	}, in.tenants, in.requestIDs, in.hashes, ids(in.ids))
	if err := tx.SendBatch(ctx, &p.batch).Close(); err != nil {
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

// insertFresh writes all that belongs to accepted requests, column by column.
func insertFresh(ctx context.Context, tx pgx.Tx, batch outbox.Batch, fresh []Acceptance) ([]outbox.Message, error) {
	now := time.Now()
	var c acceptColumns
	messages := make([]outbox.Message, len(fresh))
	for i := range fresh {
		r := clean(fresh[i])
		fresh[i] = r
		ev := delivery.Event{ID: r.ID, Version: 1, State: delivery.Pending, Tenant: r.Tenant, Channel: r.Channel, RequestID: r.RequestID,
			Class: r.Class.String(), At: now, Cause: "accepted", DueAt: r.SendAt, Custom: r.Custom}
		if r.Failure != nil {
			ev.State, ev.Cause, ev.Answer, ev.DueAt = delivery.Failed, "cannot be prepared", r.Failure, nil
		}
		body, err := ev.Encode()
		if err != nil {
			return nil, err
		}
		messages[i] = outbox.Message{ID: ev.Event, Subject: streams.Event(streams.KindDelivery, string(ev.State), string(r.Channel), r.Tenant), Body: body, Trace: r.Trace}
		c.add(&fresh[i], ev.State, messages[i])
	}
	p := newPipeline()
	if c.isOrdered() {
		p.exec(lockOrderingKeys, c.queueTenants, c.queueOrdering)
	}
	p.exec(insertDeliveries, c.ids, c.tenants, c.channels, c.requestIDs, c.classes, c.lanes, c.states, c.prepared, c.expires, c.ordering, c.traces, c.custom, c.answers)
	p.exec(insertContents, c.ids, c.requests, c.contents)
	p.exec(insertRecipients, c.recipientIDs, c.ordinals, c.addresses)
	p.exec(insertQueue, c.queued, c.queueLanes, c.queueTenants, c.queueClasses, c.dues, c.queueExpires, c.queueOrdering)
	p.exec(insertEvents, c.ids, c.versions, c.states, c.subjects, c.events)
	p.exec(outbox.Insert, [16]byte(batch.ID), c.ids, c.versions)
	return messages, tx.SendBatch(ctx, &p.batch).Close()
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
	subjects                              []string
	events                                [][]byte
}

func (c *acceptColumns) add(r *Acceptance, state delivery.State, m outbox.Message) {
	c.ids, c.tenants, c.channels = append(c.ids, r.ID), append(c.tenants, r.Tenant), append(c.channels, string(r.Channel))
	c.requestIDs, c.classes, c.lanes = append(c.requestIDs, r.RequestID), append(c.classes, int16(r.Class)), append(c.lanes, r.Lane)
	c.states, c.prepared, c.expires = append(c.states, string(state)), append(c.prepared, r.Prepared != nil), append(c.expires, r.ExpiresAt)
	c.ordering, c.traces = append(c.ordering, orNull(r.OrderingKey)), append(c.traces, orNull(r.Trace))
	c.custom, c.answers = append(c.custom, r.Custom), append(c.answers, encodeAnswer(r.Failure))
	c.requests, c.contents = append(c.requests, r.Request), append(c.contents, r.Prepared)
	c.versions, c.subjects, c.events = append(c.versions, 1), append(c.subjects, m.Subject), append(c.events, m.Body)
	for i, address := range r.Recipients {
		c.recipientIDs, c.ordinals, c.addresses = append(c.recipientIDs, r.ID), append(c.ordinals, int16(i)), append(c.addresses, address)
	}
	if state.Final() {
		return
	}
	c.queued, c.queueLanes, c.queueTenants = append(c.queued, r.ID), append(c.queueLanes, r.Lane), append(c.queueTenants, r.Tenant)
	c.queueClasses, c.dues, c.queueExpires = append(c.queueClasses, int16(r.Class)), append(c.dues, r.SendAt), append(c.queueExpires, r.ExpiresAt)
	c.queueOrdering = append(c.queueOrdering, orNull(r.OrderingKey))
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
