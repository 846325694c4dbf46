package ledger_test

import (
	"encoding/binary"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

// idAt is an id as a machine mints it whose clock says at.
func idAt(at time.Time) delivery.ID {
	id := delivery.NewID()
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(at.UnixMilli()))
	copy(id[:6], ms[2:])
	return id
}

func TestHistoryOverMonthAndYear(t *testing.T) {
	t.Parallel()
	conn := connect(t, localtest.Postgres(t))
	if _, err := conn.Exec(t.Context(), `SET TIME ZONE 'Pacific/Kiritimati'`); err != nil { // UTC+14: months must still be UTC's
		t.Fatal(err)
	}
	for _, c := range []struct {
		from string
		want []string
	}{
		{"2031-11-30T23:59:59.999Z", []string{"203111", "203112", "203201"}},
		{"2031-12-31T23:59:59.999Z", []string{"203112", "203201", "203202"}},
		{"2032-01-31T12:00:00Z", []string{"203201", "203202", "203203"}},
		{"2032-02-29T00:00:00Z", []string{"203202", "203203", "203204"}},
	} {
		from, err := time.Parse(time.RFC3339Nano, c.from)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), `SELECT ensure_history($1, 3)`, from); err != nil {
			t.Fatalf("%s: %v", c.from, err)
		}
		for _, month := range c.want {
			for _, table := range []string{"delivery", "content", "recipient", "attempt", "event"} {
				var attached bool
				if err := conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_inherits WHERE inhparent = $1::regclass AND inhrelid = to_regclass($2))`,
					table, table+"_"+month).Scan(&attached); err != nil || !attached {
					t.Errorf("%s: no partition %s_%s (%v)", c.from, table, month, err)
				}
			}
		}
		var made int
		if err := conn.QueryRow(t.Context(), `SELECT ensure_history($1, 3)`, from).Scan(&made); err != nil || made != 0 {
			t.Errorf("%s again: made %d, %v", c.from, made, err)
		}
	}
	// The bounds meet: the first and the last millisecond of each month have a home.
	for _, at := range []time.Time{time.Date(2031, 12, 31, 23, 59, 59, 999e6, time.UTC), time.Date(2032, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if _, err := conn.Exec(t.Context(), `INSERT INTO content (delivery_id, request) VALUES ($1, '')`, [16]byte(idAt(at))); err != nil {
			t.Errorf("%s: %v", at, err)
		}
	}
	var indexes int // of each partition: what the parent has
	if err := conn.QueryRow(t.Context(), `
		SELECT count(*) FROM pg_inherits i WHERE i.inhparent::regclass::text IN ('delivery_pkey', 'attempt_pkey', 'event_pkey', 'event_at', 'recipient_pkey', 'content_pkey')
		AND i.inhrelid::regclass::text LIKE '%203112%'`).Scan(&indexes); err != nil || indexes != 6 {
		t.Errorf("%d indexes attached in 2031-12, want 6 (%v)", indexes, err)
	}
}

func TestHistoryMadeByManyAtOnce(t *testing.T) {
	t.Parallel()
	url := localtest.Postgres(t)
	var wg sync.WaitGroup
	total := make([]int, 8)
	for i := range total {
		conn := connect(t, url)
		wg.Go(func() {
			if err := conn.QueryRow(t.Context(), `SELECT ensure_history('2040-06-15', 3)`).Scan(&total[i]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range total {
		sum += n
	}
	if sum != 21 {
		t.Fatalf("made %d partitions, want 21", sum)
	}
}

// A reader that stays in its transaction (a dump) must not stop the house when a
// month is made.
func TestHistoryIsMadeBesideReadersAndWriters(t *testing.T) {
	t.Parallel()
	b := open(t)
	dump, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = dump.Rollback(t.Context()) }()
	if _, err := dump.Exec(t.Context(), `LOCK TABLE delivery, content, recipient, attempt, event IN ACCESS SHARE MODE`); err != nil {
		t.Fatal(err)
	}
	month, err := b.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = month.Rollback(t.Context()) }()
	if _, err := month.Exec(t.Context(), `SET LOCAL lock_timeout = '5s'`); err != nil {
		t.Fatal(err)
	}
	if _, err := month.Exec(t.Context(), `SELECT ensure_history('2041-01-01', 1)`); err != nil {
		t.Fatalf("beside a reader: %v", err)
	}
	b.accept(t, b.request("acme", "1")) // while the month is not committed
	if err := month.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestAcceptMakesAMissingMonth(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{time.Hour, -time.Hour, 366 * 24 * time.Hour, -366 * 24 * time.Hour, 20 * 365 * 24 * time.Hour} {
		t.Run(fmt.Sprint(off), func(t *testing.T) {
			t.Parallel()
			b := open(t)
			r, near := b.request("acme", "far"), b.request("acme", "near")
			r.ID = idAt(time.Now().Add(off))
			if got := b.accept(t, near, r); !got[0].Fresh || !got[1].Fresh {
				t.Fatalf("accepted: %+v", got)
			}
			taken := b.claimAll(t, 10)
			if len(taken) != 2 {
				t.Fatalf("claimed %d", len(taken))
			}
			results, _, err := b.Settle(t.Context(), []ledger.Settlement{sent(taken[0]), sent(taken[1])})
			if err != nil || results[0] != ledger.Moved || results[1] != ledger.Moved {
				t.Fatalf("settle: %v %v", results, err)
			}
		})
	}
	t.Run("by eight at once", func(t *testing.T) {
		t.Parallel()
		b := open(t)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				r := b.request("acme", fmt.Sprint(i))
				r.ID = idAt(time.Date(2055, 5, 5, 0, 0, 0, 0, time.UTC))
				if _, _, err := b.Accept(t.Context(), []ledger.Acceptance{r}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		var n int
		if err := b.db.QueryRow(t.Context(), `SELECT count(*) FROM delivery_205505`).Scan(&n); err != nil || n != 8 {
			t.Fatalf("%d deliveries, %v", n, err)
		}
	})
}

func TestEnsureHistoryReachesAhead(t *testing.T) {
	t.Parallel()
	b := open(t)
	if _, err := b.EnsureHistory(t.Context()); err != nil {
		t.Fatal(err)
	}
	if made, err := b.EnsureHistory(t.Context()); err != nil || made != 0 {
		t.Fatalf("again: %d %v", made, err)
	}
	name := "delivery_" + time.Now().UTC().AddDate(0, 0, 1-time.Now().UTC().Day()).AddDate(0, 2, 0).Format("200601")
	var there bool
	if err := b.db.QueryRow(t.Context(), `SELECT to_regclass($1) IS NOT NULL`, name).Scan(&there); err != nil || !there {
		t.Fatalf("no partition %s (%v)", name, err)
	}
}
