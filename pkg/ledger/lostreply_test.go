package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// openDeaf is a book whose database does its work and whose answers can be lost.
func openDeaf(t *testing.T) (*book, *proxy) {
	t.Helper()
	dsn := localtest.Postgres(t)
	p, far := throughProxy(t, dsn)
	cfg, err := pgxpool.ParseConfig(far)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = 1
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	db, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	l := ledger.New(db)
	lane, err := l.Lane(t.Context(), "mail$test", "delivery")
	if err != nil {
		t.Fatal(err)
	}
	direct, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(direct.Close)
	return &book{Ledger: l, work: ledger.Deliveries{Ledger: l}, db: direct, lane: lane}, p
}

// lose runs do with its answer lost. What it runs has been run before on the same
// connection, so that its statements are known and what is lost is the last answer.
func (p *proxy) lose(t *testing.T, done func() bool, do func(context.Context) error) {
	t.Helper()
	p.deaf.Store(true)
	defer p.deaf.Store(false)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := do(ctx); err == nil {
		t.Fatal("an answer came in spite of everything")
	}
	waitFor(t, done) // the database did it all the same
}

func TestLostCommitOfASettlement(t *testing.T) {
	t.Parallel()
	b, p := openDeaf(t)
	for _, c := range []struct {
		name string
		s    func(ledger.Claimed) ledger.Settlement
	}{
		{"sent", sent},
		{"retry", func(k ledger.Claimed) ledger.Settlement { return result(k, delivery.Retry, delivery.Refused) }},
		{"unknown", func(k ledger.Claimed) ledger.Settlement { return result(k, delivery.Held, delivery.Unknown) }},
		{"expired, no attempt", func(k ledger.Claimed) ledger.Settlement {
			return ledger.Settlement{Claimed: k, Cause: "expires_at", Decision: retry.Decision{State: delivery.Expired}}
		}},
	} {
		b.settle(t, ledger.Moved, sent(b.one(t))) // warms the connection's statements
		k := b.one(t)
		s := c.s(k)
		p.lose(t, func() bool { return b.count(t, "SELECT version FROM delivery WHERE id = $1", [16]byte(k.ID)) == 2 },
			func(ctx context.Context) error {
				_, _, err := b.Settle(ctx, []ledger.Settlement{s})
				return err
			})
		b.settle(t, ledger.Already, s)
		b.settle(t, ledger.Already, s)
		if got := b.status(t, k.ID); len(got.Journey) != 2 || got.Version != 2 || got.State != s.Decision.State {
			t.Errorf("%s: %+v", c.name, got)
		}
		if n := b.count(t, "SELECT count(*) FROM outbox WHERE $1 = ANY (aggregates) AND versions = '{2}'", [16]byte(k.ID)); n != 1 {
			t.Errorf("%s: %d outbox rows", c.name, n)
		}
	}
}

func TestLostCommitOfAnAcceptance(t *testing.T) {
	t.Parallel()
	b, p := openDeaf(t)
	b.accept(t, b.request("acme", "warm"))
	r := b.request("acme", "1")
	// Accept is several round trips; the last is the commit. Lose each in turn:
	// before the commit nothing may be there, after it everything once.
	lost := 0
	for nth := range 8 {
		stop := dropNth(p, nth)
		if _, _, err := b.Accept(t.Context(), []ledger.Acceptance{r}); err != nil {
			lost++
		}
		stop()
	}
	if lost < 3 {
		t.Fatalf("only %d answers were lost", lost)
	}
	again := b.request("acme", "1")
	got := b.accept(t, again)
	if got[0].Conflict || got[0].Fresh && got[0].ID != again.ID {
		t.Fatalf("%+v", got)
	}
	waitFor(t, func() bool {
		return b.count(t, "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'") == 0
	})
	for table, want := range map[string]int{"delivery": 2, "queue": 2, "event": 2, "request_key": 2, "outbox": 2} {
		if n := b.count(t, "SELECT count(*) FROM "+table); n != want {
			t.Errorf("%d rows of %s, want %d", n, table, want)
		}
	}
}

func TestLostCommitOfACancellationAndALetter(t *testing.T) {
	t.Parallel()
	b, p := openDeaf(t)
	for i := range 2 { // the first warms up
		r := b.request("acme", delivery.NewID().String())
		b.accept(t, r)
		cancel := func(ctx context.Context) error { _, _, err := b.Cancel(ctx, r.ID, "enough"); return err }
		if i == 0 {
			if err := cancel(t.Context()); err != nil {
				t.Fatal(err)
			}
			continue
		}
		stop := dropNth(p, 4)
		_ = cancel(t.Context())
		stop()
		_ = cancel(t.Context())
		if got := b.status(t, r.ID); got.State != delivery.Cancelled || got.Version != 2 || len(got.Journey) != 2 {
			t.Errorf("%+v", got)
		}
	}
	letter := func(id string) []ledger.DeadLetter {
		return []ledger.DeadLetter{{Letter: delivery.Letter{EventID: id, Source: "poison", Channel: "_", Tenant: "_", Reason: "x"}}}
	}
	if _, err := b.Archive(t.Context(), letter("warm")); err != nil {
		t.Fatal(err)
	}
	for nth := range 5 {
		stop := dropNth(p, nth)
		_, _ = b.Archive(t.Context(), letter("poison.1"))
		stop()
	}
	if _, err := b.Archive(t.Context(), letter("poison.1")); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, "SELECT count(*) FROM outbox WHERE ids = '{dlq.poison.1}'"); n != 1 {
		t.Errorf("%d outbox rows tell of one letter", n)
	}
}
