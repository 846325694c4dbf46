package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Audit lists what operators have done, newest first.
func (l *Ledger) Audit(ctx context.Context, f delivery.AuditFilter) ([]delivery.AuditEntry, error) {
	if f.Limit <= 0 {
		f.Limit = 50
	}
	before := [16]byte{}
	for i := range before {
		before[i] = 0xff
	}
	if f.Before != nil {
		before = *f.Before
	}
	entries := []delivery.AuditEntry{}
	scan := func(rows pgx.Rows) error {
		var e delivery.AuditEntry
		var id [16]byte
		err := rows.Scan(&id, &e.At, &e.By, &e.Action, &e.Target, &e.Result, &e.Why)
		e.ID = id
		entries = append(entries, e)
		return err
	}
	p, limit := newPipeline(), min(f.Limit, 1000)
	if f.Target == "" {
		p.Query(selectAudit, scan, storable(f.By), storable(f.Action), before, limit)
	} else {
		var id *[16]byte
		if parsed, err := delivery.ParseID(f.Target); err == nil {
			id = (*[16]byte)(&parsed)
		}
		p.Query(selectAuditOf, scan, storable(f.Target), id, storable(f.By), storable(f.Action), before, limit)
	}
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("list the audit: %w", err)
	}
	return entries, nil
}
