package watchdog

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// idAt is an id of that time.
func idAt(at time.Time) [16]byte {
	id := [16]byte(delivery.NewID())
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(id[:6], ms[2:])
	return id
}

// past books one finished delivery of a moment long ago, with all that belongs to it.
func (s *site) past(at time.Time) [16]byte {
	s.t.Helper()
	id := idAt(at)
	s.exec(`SELECT ensure_history($1, 1)`, at)
	s.exec(`INSERT INTO delivery (id, tenant, channel, request_id, class, lane, state, version, prepared) VALUES ($1, 'acme', 'mail', $2, 1, 1, 'sent', 2, true)`, id, delivery.ID(id).String())
	s.exec(`INSERT INTO content (delivery_id, prepared) VALUES ($1, '')`, id)
	s.exec(`INSERT INTO recipient (delivery_id, ordinal, address) VALUES ($1, 0, 'ada@example.test')`, id)
	s.exec(`INSERT INTO attempt (delivery_id, fence, number, lane, verdict, answer) VALUES ($1, 1, 1, 1, 'accepted', '{}')`, id)
	s.exec(`INSERT INTO event (aggregate, version, kind, state, subject, body, at) VALUES ($1, 1, 'delivery', 'pending', 's', '', $2), ($1, 2, 'delivery', 'sent', 's', '', $2)`, id, at)
	s.exec(`INSERT INTO request_key (tenant, request_id, body_hash, delivery_id) VALUES ('acme', $2, '', $1)`, id, delivery.ID(id).String())
	return id
}

// tables counts the tables of a month.
func (s *site) tables(at time.Time) int {
	s.t.Helper()
	return value[int](s, `SELECT count(*) FROM pg_class WHERE relkind = 'r' AND relname LIKE '%\_' || $1`, at.Format("200601"))
}

func (s *site) pruneNow() *pruned {
	s.t.Helper()
	p, err := s.prune(s.t.Context(), value[time.Time](s, `SELECT now()`), always)
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

func TestRetentionDropsOldMonthsWhole(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	old, young := time.Date(2024, 2, 15, 0, 0, 0, 0, time.UTC), time.Now().AddDate(0, -12, 0)
	s.past(old)
	s.past(time.Date(2024, 3, 31, 23, 59, 59, 0, time.UTC))
	kept := s.past(young)
	s.accept("acme", 3)
	p := s.pruneNow()
	if !slices.Equal(p.Months, []string{"2024-02", "2024-03"}) || len(p.Kept) != 0 || p.Keys != 2 {
		t.Fatalf("%+v", p)
	}
	if n := s.tables(old); n != 0 {
		t.Errorf("%d tables of the month are left", n)
	}
	if n := s.tables(young); n != 7 {
		t.Errorf("%d tables of a younger month", n)
	}
	if n := value[int](s, `SELECT count(*) FROM delivery WHERE id = $1`, kept); n != 1 {
		t.Error("a younger delivery is gone")
	}
	if n := value[int](s, `SELECT count(*) FROM request_key`); n != 4 {
		t.Errorf("%d keys are left, want 4", n)
	}
	if again := s.pruneNow(); len(again.Months) != 0 || again.Keys != 0 {
		t.Errorf("again: %+v", again)
	}
}

// Each of these alone keeps its month, and the month's keys with it.
func TestRetentionKeepsWhatIsNotFinished(t *testing.T) {
	t.Parallel()
	at := time.Date(2024, 2, 15, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct{ sql, why string }{
		"in the queue":                   {`INSERT INTO queue (kind, id, lane, tenant, class, state, due_at, version) VALUES ('delivery', $1, 1, 'acme', 1, 'held', now(), 2)`, "not finished"},
		"a document in the queue":        {`INSERT INTO queue (kind, id, lane, tenant, class, state, due_at, version) VALUES ('document', $1, 1, 'acme', 1, 'held', now(), 2)`, "not finished"},
		"a deferred document":            {`INSERT INTO queue (kind, id, lane, tenant, class, state, due_at, version) VALUES ('deferred', $1, 1, 'acme', 1, 'waiting', now(), 2)`, "not finished"},
		"an answer that C2 may wait for": {`INSERT INTO mls_deadline (document_id, due_at) VALUES ($1, now())`, "not finished"},
		"not final, and not queued":      {`UPDATE delivery SET state = 'retry' WHERE id = $1`, "not finished"},
		"not published":                  {`INSERT INTO outbox (id, aggregates, versions, lease_until) VALUES (gen_random_uuid(), ARRAY[$1::uuid], '{2}', now())`, "not published"},
		"told within the stream's age":   {`INSERT INTO event (aggregate, version, kind, state, subject, body, at) VALUES ($1, 3, 'delivery', 'failed', 's', '', now() - interval '29 days')`, "told lately"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			id := s.past(at)
			s.exec(c.sql, id)
			p := s.pruneNow()
			if len(p.Months) != 0 || !strings.Contains(p.Kept["2024-02"], c.why) || p.Keys != 0 || s.tables(at) != 7 {
				t.Fatalf("%+v", p)
			}
			if n := value[int](s, `SELECT count(*) FROM request_key`); n != 1 {
				t.Fatal("its key is gone: the same request would be sent again")
			}
		})
	}
}

// A reader that stays keeps the month, and nobody waits for the watchdog that waits.
func TestRetentionMakesNobodyWait(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	at := time.Date(2024, 2, 15, 0, 0, 0, 0, time.UTC)
	s.past(at)
	dump, err := s.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dump.Rollback(t.Context()) }()
	if _, err := dump.Exec(t.Context(), `LOCK TABLE attempt IN ACCESS SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	months, err := s.book.Months(t.Context())
	if err != nil || months[0].String() != "2024-02" {
		t.Fatal(months, err)
	}
	dropping := make(chan *pruned, 1)
	go func() {
		p, err := s.prune(t.Context(), time.Now(), always)
		if err != nil {
			t.Error(err)
		}
		dropping <- p
	}()
	for worked := 0; ; worked++ {
		began := time.Now()
		s.accept("acme", 1)
		s.claim(time.Minute)
		if took := time.Since(began); took > 10*time.Second { // a bound that a loaded machine keeps, and a wait for the dump would not
			t.Fatalf("it took %s", took)
		}
		select {
		case p := <-dropping:
			if len(p.Months) != 0 || !strings.Contains(p.Kept["2024-02"], "in use") || worked == 0 {
				t.Fatalf("%+v after %d", p, worked)
			}
			if err := dump.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if p := s.pruneNow(); !slices.Equal(p.Months, []string{"2024-02"}) {
				t.Fatalf("%+v", p)
			}
			return
		default:
		}
	}
}

// Keys go page by page, those of living deliveries are passed over.
func TestRetentionForgetsKeysInPages(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	at := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
	living := s.past(at.Add(time.Hour))
	_, err := s.db.CopyFrom(t.Context(), pgx.Identifier{"request_key"}, []string{"tenant", "request_id", "body_hash", "delivery_id"},
		pgx.CopyFromSlice(2*keyPage+10, func(i int) ([]any, error) {
			id := idAt(at.Add(time.Duration(i) * time.Second))
			return []any{"acme", delivery.ID(id).String(), []byte{}, id}, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	s.cfg.Retention.History = 0
	if p := s.pruneNow(); p.Keys != 2*keyPage+10 || len(p.Months) != 0 {
		t.Fatalf("%+v", p)
	}
	if n := value[int](s, `SELECT count(*) FROM request_key WHERE delivery_id = $1`, living); n != 1 {
		t.Fatal("the key of a delivery that is there has gone")
	}
	plan := ""
	rows, err := s.db.Query(t.Context(), `EXPLAIN SELECT k.tenant FROM request_key k WHERE k.delivery_id > '00000000-0000-0000-0000-000000000000' AND k.delivery_id < uuid7_floor(now()) ORDER BY k.delivery_id LIMIT 10`)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if plan = strings.Join(lines, "\n"); !strings.Contains(plan, "request_key_age") {
		t.Fatal(plan)
	}
}

func TestRetentionOfEverything(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.past(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
	s.cfg.Retention = RetentionConfig{}
	if p := s.pruneNow(); len(p.Months) != 0 || p.Keys != 0 {
		t.Fatalf("%+v", p)
	}
}

func TestRetentionRefusesWhatIsUnsafe(t *testing.T) {
	t.Parallel()
	for set, want := range map[string]string{
		"HISTORY_RETENTION=480h":                            "HISTORY_RETENTION",
		"REQUEST_KEY_RETENTION=9000h":                       "REQUEST_KEY_RETENTION",
		"HISTORY_RETENTION=0s":                              "REQUEST_KEY_RETENTION",
		"HISTORY_RETENTION=800h REQUEST_KEY_RETENTION=800h": "",
		"HISTORY_RETENTION=0s REQUEST_KEY_RETENTION=0s":     "",
		"HISTORY_RETENTION=9600h REQUEST_KEY_RETENTION=0s":  "",
	} {
		_, _, err := daemon.Load[Config](append([]string{"DATABASE_URL=postgres://a:b@127.0.0.1/c"}, strings.Fields(set)...), nil)
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want+":") {
			t.Errorf("%s: %v", set, err)
		}
	}
}
