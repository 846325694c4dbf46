package ledger_test

import (
	"crypto/sha256"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

func TestMain(m *testing.M) {
	// Few random lives by default: each step asks the database a dozen questions.
	if err := errors.Join(flag.Set("rapid.checks", "12"), flag.Set("rapid.steps", "40")); err != nil {
		panic(err)
	}
	os.Exit(localtest.Main(m))
}

// book is a ledger on a private database.
type book struct {
	*ledger.Ledger
	work ledger.Deliveries
	db   *pgxpool.Pool
	lane int32
}

func open(t testing.TB) *book {
	t.Helper()
	db, err := pgxpool.New(t.Context(), localtest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	l := ledger.New(db)
	lane, err := l.Lane(t.Context(), "mail$test", "delivery")
	if err != nil {
		t.Fatal(err)
	}
	return &book{Ledger: l, work: ledger.Deliveries{Ledger: l}, db: db, lane: lane}
}

// request is a plain acceptance; change it before use.
func (b *book) request(tenant, id string) ledger.Acceptance {
	return ledger.Acceptance{ID: delivery.NewID(), Tenant: tenant, Channel: delivery.Mail, RequestID: id, BodyHash: sha256.Sum256([]byte(id)),
		Class: delivery.Transactional, Lane: b.lane, Recipients: []string{id + "@example.test"}, Prepared: []byte(`{"subject":"x"}`)}
}

func (b *book) accept(t testing.TB, requests ...ledger.Acceptance) []ledger.Acceptation {
	t.Helper()
	results, batch, err := b.Accept(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	fresh := 0
	for _, r := range results {
		if r.Fresh {
			fresh++
		}
	}
	if len(batch.Messages) != fresh {
		t.Fatalf("%d fresh requests, %d messages to publish", fresh, len(batch.Messages))
	}
	return results
}

func (b *book) claimAll(t testing.TB, n int) []ledger.Claimed {
	t.Helper()
	worker, err := b.Join(t.Context(), "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	glance, err := b.work.Look(t.Context(), claim.Group{}, 1000)
	if err != nil {
		t.Fatal(err)
	}
	var turns []claim.Turn
	for _, f := range glance.Found {
		if !f.Shut {
			turns = append(turns, claim.Turn{Group: f.Group, N: n})
		}
	}
	taken, _, err := b.work.Claim(t.Context(), worker, turns)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

func sent(c ledger.Claimed) ledger.Settlement {
	s := ledger.Settlement{Claimed: c, Verdict: delivery.Accepted, Attempt: true, Cause: "attempt", Decision: retry.Decision{State: delivery.Sent, Answer: delivery.Answer{Code: "250"}}}
	for _, r := range c.Recipients {
		s.Decision.Recipients = append(s.Decision.Recipients, delivery.RecipientOutcome{Ordinal: r.Ordinal, Verdict: delivery.Accepted, Answer: delivery.Answer{Code: "250"}})
	}
	return s
}

func TestOneDeliveryFromAcceptToSent(t *testing.T) {
	t.Parallel()
	b := open(t)
	r := b.request("acme", "order-1")
	b.accept(t, r)
	taken := b.claimAll(t, 10)
	if len(taken) != 1 || taken[0].ID != r.ID || taken[0].Fence != 1 || len(taken[0].Recipients) != 1 || string(taken[0].Prepared) != string(r.Prepared) {
		t.Fatalf("claimed %+v", taken)
	}
	results, batch, err := b.Settle(t.Context(), []ledger.Settlement{sent(taken[0])})
	if err != nil || results[0] != ledger.Moved || len(batch.Messages) != 1 {
		t.Fatalf("%v %v %v", results, batch, err)
	}
	s, err := b.Status(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if s.State != delivery.Sent || s.Version != 2 || s.Attempts != 1 || len(s.Journey) != 2 || len(s.Tried) != 1 || s.Recipients[0].State != delivery.RecipientAccepted || s.Gate.Name != "final" {
		t.Fatalf("status %+v", s)
	}
	again, batch, err := b.Settle(t.Context(), []ledger.Settlement{sent(taken[0])})
	if err != nil || again[0] != ledger.Already || len(batch.Messages) != 0 {
		t.Fatalf("the same settlement again: %v %v %v", again, batch, err)
	}
}
