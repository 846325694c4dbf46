package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/audit"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Triage marks open letters as resolved or discarded, with a remark. A letter
// that has been marked before is left as it is. Nothing is sent again.
func (l *Ledger) Triage(ctx context.Context, c delivery.TriageCommand) (delivery.TriageReport, error) {
	var report delivery.TriageReport
	named := distinct(c.EventIDs)
	err := l.begin(ctx, fmt.Sprintf("triage %d letters", len(named)), func(tx pgx.Tx) error {
		report = delivery.TriageReport{}
		have := make(map[string]string, len(named))
		p := &pipeline{}
		p.Query(lockLetters, func(rows pgx.Rows) error {
			var id, triage string
			err := rows.Scan(&id, &triage)
			have[id] = triage
			return err
		}, named)
		if err := tx.SendBatch(ctx, &p.Batch).Close(); err != nil {
			return err
		}
		var open []string
		results := make([]string, len(named))
		for i, id := range named {
			r := delivery.TriageResult{EventID: id, Triage: have[id]}
			switch r.Triage {
			case "open":
				r.Triage, r.Changed = c.As, true
				open = append(open, id)
				report.Done++
			case "":
				r.Triage = "not_found"
				report.Skipped++
			default:
				report.Skipped++
			}
			results[i] = r.Triage
			if !r.Changed && have[id] != "" {
				results[i] = "was " + r.Triage
			}
			report.Results = append(report.Results, r)
		}
		if len(open) > 0 {
			if _, err := tx.Exec(ctx, triageLetters, open, c.As, c.Why); err != nil {
				return err
			}
		}
		return audit.Write(ctx, tx, c.Warrant, "triage", named, results)
	})
	return report, err
}
