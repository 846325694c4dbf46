package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

// chunk is how many rows of history one statement makes.
const chunk = 250_000

// claimBuffers counts the buffers that a claim of n rows reads, from a database
// with a history of finished rows and with rows that wait for their time.
func (s *servers) claimBuffers(ctx context.Context, n, finished, waiting int, tell func(string)) (buffers float64, err error) {
	err = s.on(ctx, ground{}, func(ctx context.Context, at *site) (err error) {
		if err := at.history(ctx, finished, waiting, tell); err != nil {
			return err
		}
		if err := at.accept(ctx, bunch{tenant, at.lane, "r", 2 * n}); err != nil {
			return err
		}
		if err := at.rest(ctx); err != nil {
			return err
		}
		buffers, err = at.explainClaim(ctx, n)
		return err
	})
	return buffers, err
}

// history makes finished and waiting deliveries straight in SQL: the tables that
// a claim reads. Their ids are of yesterday.
func (at *site) history(ctx context.Context, finished, waiting int, tell func(string)) error {
	const ids = `WITH x AS MATERIALIZED (
		SELECT g, (substr(t, 1, 14) || '7' || lpad(to_hex(g % 4096), 3, '0') || '-8' || lpad(to_hex(g / 4096 % 4096), 3, '0') || '-' || lpad(to_hex(g), 12, '0'))::uuid AS id
		FROM (SELECT g, uuid7_floor(now() - interval '1 day' + g * interval '5 ms')::text AS t FROM generate_series($1::bigint, $2::bigint) g) s
	), d AS (
		INSERT INTO delivery (id, tenant, channel, request_id, class, lane, state, version, prepared, attempts)
		SELECT id, $3, 'mail', 'h' || g, 1, $4, CASE WHEN g <= $5 THEN 'sent' ELSE 'pending' END, 2, true, 1 FROM x
	), c AS (
		INSERT INTO content (delivery_id, prepared) SELECT id, '{}' FROM x
	), r AS (
		INSERT INTO recipient (delivery_id, ordinal, address) SELECT id, 0, 'user' || g || '@example.test' FROM x
	)
	INSERT INTO queue (kind, id, lane, tenant, class, state, due_at, version)
	SELECT 'delivery', id, $4, $3, 1, 'waiting', now() + interval '1 day' + g * interval '1 ms', 2 FROM x WHERE g > $5`
	for from := 1; from <= finished+waiting; from += chunk {
		to := min(from+chunk-1, finished+waiting)
		if _, err := at.db.Exec(ctx, ids, from, to, tenant, at.lane, finished); err != nil {
			return fmt.Errorf("make history: %w", err)
		}
		tell(fmt.Sprintf("%d of %d rows of history", to, finished+waiting))
	}
	return nil
}

// explainClaim lets the ledger claim n rows, listens to what it says to the
// database, and has the database explain the same statements.
func (at *site) explainClaim(ctx context.Context, n int) (float64, error) {
	cfg, err := pgxpool.ParseConfig(at.url)
	if err != nil {
		return 0, fmt.Errorf("explain a claim: %w", err)
	}
	heard := &listener{}
	cfg.MaxConns, cfg.ConnConfig.Tracer = 1, heard
	db, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return 0, fmt.Errorf("explain a claim: %w", err)
	}
	defer db.Close()
	book := ledger.Deliveries{Ledger: ledger.New(db)}
	worker, err := book.Join(ctx, "bench", time.Hour)
	if err != nil {
		return 0, err
	}
	taken, _, err := book.Claim(ctx, worker, []claim.Turn{{Group: claim.Group{Lane: at.lane, Tenant: tenant, Class: int16(delivery.Transactional)}, N: n}})
	if err != nil {
		return 0, err
	}
	if len(taken) != n {
		return 0, fmt.Errorf("explain a claim: of %d rows it took %d", n, len(taken))
	}
	var total float64
	tx, err := at.db.Begin(ctx)
	if err != nil {
		return 0, fmt.Errorf("explain a claim: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	for i, q := range heard.batch {
		buffers, err := explain(ctx, tx.Conn(), fmt.Sprintf("explained_%d", i), q)
		if err != nil {
			return 0, fmt.Errorf("explain a claim: %w", err)
		}
		total += buffers
	}
	return total, nil
}

// listener keeps the statements of the last batch that a connection has sent. It
// is used by one connection at a time.
type listener struct{ batch []pgx.TraceBatchQueryData }

func (l *listener) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	l.batch = nil
	return ctx
}

func (l *listener) TraceBatchQuery(_ context.Context, _ *pgx.Conn, q pgx.TraceBatchQueryData) {
	l.batch = append(l.batch, q)
}

func (*listener) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (*listener) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*listener) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// explain executes a statement as it was sent, prepared and with the same
// arguments, and tells how many buffers it read.
func explain(ctx context.Context, conn *pgx.Conn, name string, q pgx.TraceBatchQueryData) (float64, error) {
	prepared, err := conn.Prepare(ctx, name, q.SQL)
	if err != nil {
		return 0, err
	}
	literals := make([]string, len(q.Args))
	for i, arg := range q.Args {
		b, err := conn.TypeMap().Encode(prepared.ParamOIDs[i], pgtype.TextFormatCode, arg, nil)
		if err != nil {
			return 0, fmt.Errorf("argument %d: %w", i+1, err)
		}
		if literals[i] = "NULL"; b != nil {
			literals[i] = "'" + strings.ReplaceAll(string(b), "'", "''") + "'"
		}
	}
	call := name
	if len(literals) > 0 {
		call += "(" + strings.Join(literals, ", ") + ")"
	}
	var raw []byte
	if err := conn.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE "+call, pgx.QueryExecModeSimpleProtocol).Scan(&raw); err != nil {
		return 0, err
	}
	var plans []struct {
		Plan struct {
			Hit  float64 `json:"Shared Hit Blocks"`
			Read float64 `json:"Shared Read Blocks"`
		}
	}
	if err := json.Unmarshal(raw, &plans); err != nil || len(plans) != 1 {
		return 0, fmt.Errorf("not a plan: %.100q", raw)
	}
	return plans[0].Plan.Hit + plans[0].Plan.Read, nil
}
