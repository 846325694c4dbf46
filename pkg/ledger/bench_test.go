package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

// backlog makes n ready deliveries over the given number of lanes and seven
// tenants, straight in SQL.
func (b *book) backlog(t testing.TB, lanes, n int) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO lane (key, kind) SELECT 'mail$many' || g, 'delivery' FROM generate_series(2, $1) g`,
		`CREATE TABLE many AS SELECT (substr(uuid7_floor(now())::text, 1, 14) || '7' || lpad(to_hex(g / 65536), 3, '0') || '-8' || lpad(to_hex(g % 4096), 3, '0') || '-' || lpad(to_hex(g), 12, '0'))::uuid AS id,
			1 + g % $1 AS lane, 't' || (g / $1) % 7 AS tenant, (g % 3)::smallint AS class, g FROM generate_series(1, $2::int) g`,
		`INSERT INTO delivery (id, tenant, channel, request_id, class, lane, state, version, prepared) SELECT id, tenant, 'mail', g::text, class, lane, 'pending', 1, true FROM many`,
		`INSERT INTO content (delivery_id, prepared) SELECT id, convert_to(repeat(md5(g::text), 32), 'UTF8') FROM many`,
		`INSERT INTO recipient (delivery_id, ordinal, address) SELECT id, 0, 'user@example.test' FROM many`,
		`INSERT INTO event (aggregate, version, kind, state, subject, body) SELECT id, 1, 'delivery', 'pending', 's', '' FROM many`,
		`INSERT INTO queue (kind, id, lane, tenant, class, state, due_at, version) SELECT 'delivery', id, lane, tenant, class, 'ready', now() - interval '1 hour' + g * interval '1 ms', 1 FROM many`,
	} {
		args := []any{lanes, n}
		switch {
		case sql[:6] == "CREATE":
		case sql[:16] == "INSERT INTO lane":
			args = args[:1]
		default:
			args = nil
		}
		if len(args) > 0 {
			if _, err := b.db.Exec(t.Context(), sql, append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := b.db.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkClaimAndSettle drains a backlog with one claimer that settles what it
// takes, as the sender does, over one lane and over many.
func BenchmarkClaimAndSettle(bench *testing.B) {
	for _, c := range []struct {
		name     string
		lanes, n int
	}{{"one lane", 1, 50_000}, {"10000 lanes of a million rows", 10_000, 1_000_000}} {
		bench.Run(c.name, func(bench *testing.B) {
			ctx := context.Background()
			b := open(bench)
			b.backlog(bench, c.lanes, c.n)
			worker, err := b.Join(ctx, "bench", time.Hour)
			if err != nil {
				bench.Fatal(err)
			}
			turns := claim.NewTurns(64)
			var cursor claim.Group
			var looked time.Time
			var look, take, settle time.Duration
			bench.ResetTimer()
			start, total := time.Now(), 0
			for total < 50_000 {
				if time.Since(looked) > 500*time.Millisecond || turns.Empty() {
					at := time.Now()
					glance, err := b.work.Look(ctx, cursor, 1000)
					if err != nil {
						bench.Fatal(err)
					}
					cursor = claim.Group{}
					for _, f := range glance.Found {
						turns.Announce(f.Group)
						if len(glance.Found) == 1000 {
							cursor = f.Group
						}
					}
					looked = time.Now()
					look += time.Since(at)
				}
				at := time.Now()
				asked := turns.Next(500, func(int32) int { return 500 }, at)
				taken, _, err := b.work.Claim(ctx, worker, asked)
				if err != nil {
					bench.Fatal(err)
				}
				got := map[claim.Group]int{}
				newest := map[claim.Group]time.Time{}
				settlements := make([]ledger.Settlement, len(taken))
				for i, t := range taken {
					got[t.Group()]++
					newest[t.Group()] = t.DueAt
					settlements[i] = sent(t)
				}
				for _, t := range asked {
					turns.Served(t, got[t.Group], newest[t.Group])
				}
				take += time.Since(at)
				at = time.Now()
				if _, _, err := b.Settle(ctx, settlements); err != nil {
					bench.Fatal(err)
				}
				settle += time.Since(at)
				total += len(taken)
			}
			bench.ReportMetric(float64(total)/time.Since(start).Seconds(), "deliveries/s")
			bench.ReportMetric(float64(look.Milliseconds()), "look-ms")
			bench.ReportMetric(float64(take.Milliseconds()), "claim-ms")
			bench.ReportMetric(float64(settle.Milliseconds()), "settle-ms")
		})
	}
}
