package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/streams"
)

// DeadLetter is a letter with what only the archive keeps.
type DeadLetter struct {
	delivery.Letter

	Subject string              // of the message that was refused
	Headers map[string][]string // as they came
	Raw     []byte
}

// Archive writes each letter once and, in the same transaction, the outbox row
// that tells of the fresh ones. A letter that is there already is left as it is.
func (l *Ledger) Archive(ctx context.Context, letters []DeadLetter) (outbox.Batch, error) {
	batch := outbox.Batch{ID: newBatchID()}
	if len(letters) == 0 {
		return batch, nil
	}
	var c struct {
		events, sources, channels, tenants, requests, codes, reasons, subjects []string
		summaries, headers, raws                                               [][]byte
	}
	messages := make(map[string]outbox.Message, len(letters))
	var order []string
	aggregates := make([]*[16]byte, 0, len(letters))
	for i := range letters {
		d := &letters[i]
		if _, twice := messages[d.EventID]; twice {
			continue
		}
		d.Schema, d.Reason, d.Code = 1, delivery.Bound(d.Reason), delivery.Bound(d.Code)
		d.RequestID, d.Subject = storable(d.RequestID), storable(d.Subject)
		body, err := json.Marshal(d.Letter)
		if err != nil {
			return batch, fmt.Errorf("dead letter %s: %w", d.EventID, err)
		}
		headers, err := json.Marshal(d.Headers)
		if err != nil {
			return batch, fmt.Errorf("dead letter %s: %w", d.EventID, err)
		}
		messages[d.EventID] = outbox.Message{ID: "dlq." + d.EventID, Subject: streams.DLQ(streams.Source(d.Source), d.Channel, d.Tenant), Body: body}
		order = append(order, d.EventID)
		summary := d.Summary
		if summary == nil {
			summary = json.RawMessage("{}")
		}
		c.events, c.sources, c.channels, c.tenants = append(c.events, d.EventID), append(c.sources, d.Source), append(c.channels, d.Channel), append(c.tenants, d.Tenant)
		c.requests, c.codes, c.reasons, c.subjects = append(c.requests, d.RequestID), append(c.codes, d.Code), append(c.reasons, d.Reason), append(c.subjects, d.Subject)
		c.summaries, c.headers, c.raws = append(c.summaries, summary), append(c.headers, headers), append(c.raws, d.Raw)
		aggregates = append(aggregates, (*[16]byte)(d.ID))
	}
	err := l.begin(ctx, fmt.Sprintf("archive %d dead letters", len(order)), func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, insertDeadLetters, c.events, c.sources, c.channels, c.tenants, aggregates, c.requests, c.codes, c.reasons,
			c.summaries, c.subjects, c.headers, c.raws)
		if err != nil {
			return err
		}
		inserted, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || len(inserted) == 0 {
			return err
		}
		var ids, subjects []string
		var bodies [][]byte
		batch.Messages = nil
		for _, id := range inserted {
			m := messages[id]
			batch.Messages = append(batch.Messages, m)
			ids, subjects, bodies = append(ids, m.ID), append(subjects, m.Subject), append(bodies, m.Body)
		}
		_, err = tx.Exec(ctx, outbox.InsertMessages, [16]byte(batch.ID), ids, subjects, bodies)
		return err
	})
	if err != nil {
		return outbox.Batch{ID: batch.ID}, err
	}
	return batch, nil
}

// DeadLetters lists letters, newest first.
func (l *Ledger) DeadLetters(ctx context.Context, f delivery.LetterFilter) ([]delivery.Letter, error) {
	if f.Limit <= 0 {
		f.Limit = 50
	}
	letters := []delivery.Letter{}
	p := newPipeline()
	p.Query(selectDeadLetters, func(rows pgx.Rows) error {
		d := delivery.Letter{Schema: 1}
		var id *[16]byte
		err := rows.Scan(&d.EventID, &d.Source, &d.Channel, &d.Tenant, &id, &d.RequestID, &d.Code, &d.Reason, &d.Triage, &d.Remark, &d.ArchivedAt)
		d.ID = (*delivery.ID)(id)
		letters = append(letters, d)
		return err
	}, f.Tenant, f.Source, f.OpenOnly, min(f.Limit, 1000))
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("list dead letters: %w", err)
	}
	return letters, nil
}

// OpenLetters lists letters that nobody has dealt with, archived from since until
// until, in the order of their ids, as they were told when they were archived.
func (l *Ledger) OpenLetters(ctx context.Context, after string, since, until time.Time, limit int) ([]outbox.Message, error) {
	var list []outbox.Message
	p := newPipeline()
	p.Query(openLetters, func(rows pgx.Rows) error {
		var aggregate *[16]byte
		var d delivery.Letter
		if err := rows.Scan(&d.EventID, &d.Source, &d.Channel, &d.Tenant, &aggregate, &d.RequestID, &d.Code, &d.Reason, &d.Summary); err != nil {
			return err
		}
		d.Schema, d.ID = 1, (*delivery.ID)(aggregate)
		if string(d.Summary) == "{}" {
			d.Summary = nil
		}
		body, err := json.Marshal(d)
		list = append(list, outbox.Message{ID: "dlq." + d.EventID, Subject: streams.DLQ(streams.Source(d.Source), d.Channel, d.Tenant), Body: body})
		return err
	}, after, limit, since, until)
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("list open letters: %w", err)
	}
	return list, nil
}
