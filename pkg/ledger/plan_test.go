package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// planned is a statement of sql.go with literal arguments, and the indexes that
// its plan must walk.
type planned struct {
	args    string
	indexes []string
}

// smallTable may be read as a whole: it has a row for each running instance.
const smallTable = "worker"

// plans lists what is planned. A statement that is missing here fails the test.
func plans() map[string]planned {
	one, two := delivery.NewID().String(), delivery.NewID().String() // of this month, or every partition is pruned
	anID, anIDs := "'"+one+"'", "'{"+one+","+two+"}'"
	return map[string]planned{
		"insertRequestKeys":     {`'{a,a}', '{r,s}', '{"\\x00","\\x01"}', ` + anIDs, nil},
		"selectRequestKeys":     {`'{a,a}', '{r,s}'`, []string{"request_key_pkey"}},
		"insertDeliveries":      {anIDs + `, '{a,a}', '{mail,mail}', '{r,s}', '{1,1}', '{1,1}', '{pending,pending}', '{t,t}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}'`, nil},
		"insertContents":        {anIDs + `, '{NULL,NULL}', '{"\\x00","\\x00"}'`, nil},
		"insertRecipients":      {anIDs + `, '{0,0}', '{a,b}'`, nil},
		"lockOrderingKeys":      {`'{a}', '{k}'`, nil},
		"insertQueue":           {anIDs + `, '{1,1}', '{a,a}', '{1,1}', '{NULL,NULL}', '{NULL,NULL}', '{k,NULL}', ` + anID + `, '{t,f}'`, []string{"queue_ordered", "queue_ready", "lane_pkey"}},
		"insertEvents":          {anIDs + `, '{1,1}', '{pending,pending}', '{s,s}', '{"\\x00","\\x00"}'`, nil},
		"insertWorker":          {anID + `, 'i', 15`, nil},
		"renewWorker":           {anID + `, 15`, []string{"worker_pkey"}},
		"deleteWorker":          {anID, []string{"worker_pkey", "queue_leased"}},
		"lockGates":             {`'{1,2}'`, []string{"lane_pkey"}},
		"claimDeferred":         {anID + `, 43200, 200`, []string{"lane_shut", "queue_pkey"}},
		"gates":                 {`'{1,2}'`, []string{"lane_pkey", "queue_leased"}},
		"scanReady":             {`0, '', 0, 1000`, []string{"queue_ready", "lane_pkey"}},
		"claimRows":             {anID + `, '{1,1}', '{t0,t1}', '{1,1}', '{-infinity,-infinity}', '{10,10}'`, []string{"queue_ready", "queue_pkey", "queue_leased", "pause_pkey", "lane_pkey", "delivery_*_pkey", "content_*_pkey", "recipient_*_pkey"}},
		"promote":               {`1000`, []string{"queue_waiting", "queue_pkey"}},
		"returnRows":            {anID + `, '{}', '-infinity', '{}'`, []string{"queue_leased"}},
		"nextDue":               {``, []string{"queue_waiting"}},
		"settle":                {anID + `, ` + anIDs + `, '{1,1}', '{1,1}', ` + anIDs + `, '{now,now}', '{sent,retry}', '{0,1}', '{1,1}', '{0,1}', '{accepted,refused}', '{"{}","{}"}', '{"[]","[]"}', '{s,s}', '{"\\x00","\\x00"}'`, []string{"queue_pkey", "delivery_*_pkey", "recipient_*_pkey"}},
		"unblock":               {`'{a}', '{k}'`, []string{"queue_ordered", "queue_pkey"}},
		"giveBack":              {anIDs + `, '{1,1}', ` + anIDs + `, '{0,1}'`, []string{"queue_pkey"}},
		"settledAttempts":       {anIDs + `, '{1,1}', ` + anIDs + `, '{accepted,refused}'`, []string{"attempt_*_pkey"}},
		"settledWithoutAttempt": {anIDs + `, '{1,1}', '{1,1}', '{none,none}', '{sent,expired}'`, []string{"delivery_*_pkey"}},
		"stuck":                 {`600, ` + anID + `, 200`, []string{"queue_leased", "delivery_*_pkey", "recipient_*_pkey", "worker_pkey"}},
		"nextLapse":             {``, []string{"queue_leased"}},
		"forgetWorkers":         {``, []string{"queue_leased", "worker_pkey"}},
		"overdue":               {`200`, []string{"queue_expiry"}},
		"lockDelivery":          {anID, []string{"delivery_*_pkey"}},
		"lockQueued":            {anID, []string{"queue_pkey"}},
		"insertLate":            {anID + `, 1, 1, 1, ` + anID + `, now(), '{}'`, nil},
		"orderingOf":            {anID, []string{"delivery_*_pkey"}},
		"lockWaiting":           {anID + `, false`, []string{"queue_pkey", "delivery_*_pkey"}},
		"deleteQueued":          {anID, []string{"queue_pkey"}},
		"moveDelivery":          {anID + `, 'sent', 2, '{}', 1`, []string{"delivery_*_pkey"}},
		"moveRecipient":         {anID + `, 0, 'accepted', '', ''`, []string{"recipient_*_pkey"}},
		"deliveryOfRequest":     {`'a', 'r'`, []string{"request_key_pkey"}},
		"selectStatus":          {anID, []string{"delivery_*_pkey", "queue_pkey", "lane_pkey", "worker_pkey"}},
		"selectRecipients":      {anID, []string{"recipient_*_pkey"}},
		"selectAttempts":        {anID, []string{"attempt_*_pkey"}},
		"selectEvents":          {anID, []string{"event_*_pkey"}},
		"openLetters":           {`'', 500, '-infinity', 'infinity'`, []string{"dead_letter_*"}},
		"insertDeadLetters":     {`'{e}', '{poison}', '{mail}', '{a}', '{NULL}', '{r}', '{c}', '{w}', '{"{}"}', '{s}', '{"{}"}', '{NULL}'`, nil},
	}
}

// unplanned needs no plan of its own, and why.
func unplanned() map[string]string {
	return map[string]string{
		"pinPlanner": "reads no table", "ensureHistory": "reads no table", "ensureHistoryAhead": "reads no table",
		"selectDeadLetters": "a person's list of an archive that people keep small",
	}
}

// node is a step of a plan as EXPLAIN (FORMAT JSON) tells it.
type node struct {
	Type     string `json:"Node Type"`
	Relation string `json:"Relation Name"`
	Index    string `json:"Index Name"`
	Cond     string `json:"Index Cond"`
	Hit      int    `json:"Shared Hit Blocks"`
	Read     int    `json:"Shared Read Blocks"`
	Plans    []node `json:"Plans"`
}

func (n node) walk(visit func(node)) {
	visit(n)
	for _, p := range n.Plans {
		p.walk(visit)
	}
}

func explain(t *testing.T, tx pgx.Tx, sql string) (node, string) {
	t.Helper()
	var text []byte
	if err := tx.QueryRow(t.Context(), sql, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	var plans []struct{ Plan node }
	if err := json.Unmarshal(text, &plans); err != nil {
		t.Fatal(err)
	}
	var short strings.Builder
	plans[0].Plan.walk(func(n node) { fmt.Fprintf(&short, "\t%s %s %s\n", n.Type, n.Relation, n.Index) })
	return plans[0].Plan, short.String()
}

// checkPlan prepares the statement as its pipeline does and looks at what the
// planner makes of it.
func (b *book) checkPlan(t *testing.T, mode, name, sql string, want planned) {
	t.Helper()
	conn, err := b.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = tx.Rollback(context.WithoutCancel(t.Context()))
		_, _ = conn.Exec(context.WithoutCancel(t.Context()), "DEALLOCATE the_statement", pgx.QueryExecModeSimpleProtocol)
	}()
	for _, set := range []string{all(t)["pinPlanner"], "SET LOCAL plan_cache_mode = " + mode, "PREPARE the_statement AS " + sql} {
		if _, err := tx.Exec(t.Context(), set, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	args := ""
	if want.args != "" {
		args = "(" + want.args + ")"
	}
	plan, text := explain(t, tx, "EXPLAIN (FORMAT JSON) EXECUTE the_statement"+args)
	missing := map[string]bool{}
	for _, i := range want.indexes {
		missing[i] = true
	}
	plan.walk(func(n node) {
		if n.Type == "Seq Scan" && n.Relation == smallTable {
			return
		}
		switch n.Type {
		case "Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan":
			t.Errorf("%s, %s: %s of %q\n%s", name, mode, n.Type, n.Relation, text)
		}
		for i := range missing {
			head, tail, _ := strings.Cut(i, "*")
			if strings.HasPrefix(n.Index, head) && strings.HasSuffix(n.Index, tail) {
				delete(missing, i)
			}
		}
	})
	if len(missing) > 0 {
		t.Errorf("%s, %s: the plan does not use %v\n%s", name, mode, slices.Sorted(maps.Keys(missing)), text)
	}
}

func (b *book) checkPlans(t *testing.T) {
	t.Helper()
	every, listed, excused := all(t), plans(), unplanned()
	maps.Copy(listed, upkeepPlans())
	maps.Copy(excused, upkeepUnplanned())
	maps.Copy(listed, operationPlans())
	maps.Copy(excused, operationsUnplanned())
	for _, name := range slices.Sorted(maps.Keys(every)) {
		want, ok := listed[name]
		if _, excuse := excused[name]; !ok && !excuse {
			t.Errorf("statement %s is in no list of this test", name)
		}
		if !ok {
			continue
		}
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			b.checkPlan(t, mode, name, every[name], want)
		}
	}
}

// history makes n deliveries with all that belongs to them: finished ones, or
// such as wait for tomorrow.
func (b *book) history(t testing.TB, n int, waiting bool) {
	t.Helper()
	offset, state := 1, "sent"
	if waiting {
		offset, state = 500_001, "retry"
	}
	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		fmt.Sprintf(`CREATE TEMP TABLE load ON COMMIT DROP AS
			SELECT (substr(uuid7_floor(now())::text, 1, 14) || '7' || lpad(to_hex(g / 4096), 3, '0') || '-9' || lpad(to_hex(g %% 4096), 3, '0') || '-' || lpad(to_hex(g), 12, '0'))::uuid AS id,
			       g, 't' || g %% 7 AS tenant, '%s' AS state FROM generate_series(%d, %d) g`, state, offset, offset+n-1),
		`INSERT INTO delivery (id, tenant, channel, request_id, class, lane, state, version, prepared) SELECT id, tenant, 'mail', g::text, 1, 1, state, 2, true FROM load`,
		`INSERT INTO content (delivery_id, prepared) SELECT id, '\x00' FROM load`,
		`INSERT INTO recipient (delivery_id, ordinal, address) SELECT id, 0, 'user@example.test' FROM load`,
		`INSERT INTO event (aggregate, version, kind, state, subject, body) SELECT id, v, 'delivery', state, 's', '' FROM load, generate_series(1, 2) v`,
		`INSERT INTO attempt (delivery_id, fence, number, lane, verdict, answer) SELECT id, 1, 1, 1, 'accepted', '{}' FROM load`,
		`INSERT INTO request_key (tenant, request_id, body_hash, delivery_id) SELECT tenant, g::text, '\x00', id FROM load`,
		`INSERT INTO queue (kind, id, lane, tenant, class, state, due_at, version)
			SELECT 'delivery', id, 1, tenant, 1, 'waiting', now() + interval '1 day' + g * interval '1 ms', 2 FROM load WHERE state = 'retry'`,
	} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (b *book) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	if _, err := b.db.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func TestPlansOnADatabaseThatWasNeverAnalysed(t *testing.T) {
	t.Parallel()
	open(t).checkPlans(t)
}

func TestPlansAfterABulkLoad(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.history(t, 50_000, false)
	b.history(t, 20_000, true)
	b.backlog(t, 20, 20_000)
	b.exec(t, "ANALYZE")
	b.checkPlans(t)
}

// claimCost tells how many buffers a claim of ten rows touches, and undoes it.
func (b *book) claimCost(t *testing.T, mark string) int {
	t.Helper()
	tx, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	every := all(t)
	for _, set := range []string{every["pinPlanner"], "DEALLOCATE ALL", "PREPARE the_claim AS " + every["claimRows"]} {
		if _, err := tx.Exec(t.Context(), set, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
	cost := 0
	for range 2 { // the first also fills the caches of the session
		plan, _ := explain(t, tx, fmt.Sprintf(`EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE the_claim ('%s', '{1}', '{few}', '{1}', '{%s}', '{10}')`, delivery.NewID(), mark))
		cost = plan.Hit + plan.Read
	}
	return cost
}

// few makes n ready rows of a tenant of its own.
func (b *book) few(t *testing.T, n int) {
	t.Helper()
	for i := range n {
		b.accept(t, b.request("few", fmt.Sprintf("few-%d-%s", i, delivery.NewID())))
	}
}

func TestClaimCostDoesNotDependOnHistory(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.exec(t, `ALTER TABLE queue SET (autovacuum_enabled = off)`)
	b.few(t, 40)
	empty := b.claimCost(t, "-infinity")
	b.history(t, 100_000, true)
	waiting := b.claimCost(t, "-infinity")
	b.history(t, 100_000, false)
	finished := b.claimCost(t, "-infinity")
	b.exec(t, "ANALYZE")
	analysed := b.claimCost(t, "-infinity")
	b.exec(t, `DELETE FROM queue WHERE state = 'waiting'`) // no vacuum after it
	deleted := b.claimCost(t, "-infinity")
	t.Logf("buffers of a claim of 10 rows: empty %d, 100k waiting %d, and 100k finished %d, analysed %d, waiting ones deleted %d", empty, waiting, finished, analysed, deleted)
	for name, cost := range map[string]int{"waiting": waiting, "finished": finished, "analysed": analysed, "deleted": deleted} {
		if cost > 2*empty {
			t.Errorf("%s: a claim touches %d buffers, on an empty database %d", name, cost, empty)
		}
	}
}

// What was served and has left the queue lies dead before what is next, until a
// vacuum. The mark steps over it; the walk from the start (once a second) pays for
// the leaf pages, not for the rows.
func TestClaimCostBehindServedRows(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.exec(t, `ALTER TABLE queue SET (autovacuum_enabled = off)`)
	b.few(t, 30)
	fresh := b.claimCost(t, "-infinity")
	var newest string
	b.exec(t, `INSERT INTO queue (kind, id, lane, tenant, class, state, due_at, version)
		SELECT 'delivery', gen_random_uuid(), 1, 'few', 1, 'ready', now() - interval '1 hour' + g * interval '1 ms', 1 FROM generate_series(1, 20000) g`)
	if err := b.db.QueryRow(t.Context(), `SELECT (max(due_at) - interval '250 ms')::text FROM queue WHERE due_at < now() - interval '30 minutes'`).Scan(&newest); err != nil {
		t.Fatal(err)
	}
	b.exec(t, `DELETE FROM queue WHERE due_at < now() - interval '30 minutes'`)
	marked := b.claimCost(t, newest)
	again := b.claimCost(t, "-infinity")
	t.Logf("buffers of a claim of 10 rows: fresh %d, behind 20k served ones with the mark %d, from the start %d", fresh, marked, again)
	if marked > 2*fresh || again > 20_000/10 {
		t.Errorf("a claim behind served rows touches %d buffers with the mark and %d without, %d on a fresh database", marked, again, fresh)
	}
}
