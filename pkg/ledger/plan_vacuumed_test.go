package ledger_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestPlansOnAQueueThatWasSeenEmpty: when autovacuum has seen the queue empty,
// one look through the whole of it seems as cheap as many probes. Such a plan
// would be kept when the backlog comes, and cost a hundred times as much.
func TestPlansOnAQueueThatWasSeenEmpty(t *testing.T) {
	t.Parallel()
	b := open(t)
	if _, err := b.db.Exec(t.Context(), "VACUUM ANALYZE queue", pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	every, listed := all(t), plans()
	for _, name := range []string{"claimRows", "promote", "settle", "giveBack", "unblock"} {
		tx, err := b.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, set := range []string{every["pinPlanner"], "PREPARE the_statement AS " + every[name]} {
			if _, err := tx.Exec(t.Context(), set, pgx.QueryExecModeSimpleProtocol); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		plan, text := explain(t, tx, "EXPLAIN (FORMAT JSON) EXECUTE the_statement("+listed[name].args+")")
		probes := 0
		plan.walk(func(n node) {
			if n.Index != "queue_pkey" {
				return
			}
			if probes++; !strings.Contains(n.Cond, "id = ") {
				t.Errorf("%s walks the queue by %q\n%s", name, n.Cond, text)
			}
		})
		if probes == 0 {
			t.Errorf("%s does not look up queue rows by key\n%s", name, text)
		}
		if _, err := tx.Exec(t.Context(), "DEALLOCATE the_statement", pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
		_ = tx.Rollback(context.WithoutCancel(t.Context()))
	}
}
