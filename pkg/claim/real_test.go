package claim_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

func TestMain(m *testing.M) {
	code := localtest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// tracer counts statements that reach the database.
type tracer struct{ n atomic.Int64 }

func (t *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	t.n.Add(1)
	return ctx
}
func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (t *tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { t.n.Add(1) }
func (*tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)       {}

type house struct {
	ledger.Deliveries
	db    *pgxpool.Pool
	count *tracer
	lanes []int32
}

func open(t *testing.T) *house {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(localtest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	h := &house{count: &tracer{}}
	cfg.ConnConfig.Tracer = h.count
	if h.db, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.db.Close)
	h.Ledger = ledger.New(h.db)
	for i := range 3 {
		lane, err := h.Lane(t.Context(), fmt.Sprint("mail$", i), "delivery")
		if err != nil {
			t.Fatal(err)
		}
		h.lanes = append(h.lanes, lane)
	}
	return h
}

func (h *house) accept(t *testing.T, n int) {
	t.Helper()
	batch := make([]ledger.Acceptance, n)
	for i := range batch {
		id := fmt.Sprint(delivery.NewID())
		batch[i] = ledger.Acceptance{ID: delivery.NewID(), Tenant: fmt.Sprint("t", i%5), Channel: delivery.Mail, RequestID: id, BodyHash: sha256.Sum256([]byte(id)),
			Class: delivery.Class(i % 3), Lane: h.lanes[i%3], Recipients: []string{"a@example.test"}, Prepared: []byte("x")}
	}
	if _, _, err := h.Accept(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
}

func (h *house) queued(t *testing.T) (n int) {
	t.Helper()
	if err := h.db.QueryRow(t.Context(), "SELECT count(*) FROM queue").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Two loops over one queue: all is done, nothing twice, and both leave in order.
func TestTwoLoopsOverTheLedger(t *testing.T) {
	t.Parallel()
	h := open(t)
	const total = 400
	h.accept(t, total)
	var mu sync.Mutex
	begun := map[delivery.ID]int{}
	var inWork, most atomic.Int64
	taking, endTaking := context.WithCancel(t.Context())
	working, endWorking := context.WithCancel(t.Context())
	defer endWorking()
	defer endTaking()
	var loops sync.WaitGroup
	for i := range 2 {
		loop := claim.NewLoop(claim.Config{Instance: fmt.Sprint(i), Slots: 16, LaneSlots: 8, Term: 15 * time.Second, Poll: 20 * time.Millisecond, IdlePoll: 100 * time.Millisecond,
			MaxClaim: 100, Log: localtest.Logger(t)}, h.Deliveries, func(_ context.Context, c ledger.Claimed, _ *claim.Lease) {
			most.Store(max(most.Load(), inWork.Add(1)))
			defer inWork.Add(-1)
			mu.Lock()
			begun[c.ID]++
			mu.Unlock()
			s := ledger.Settlement{Claimed: c, Verdict: delivery.Accepted, Attempt: true, Cause: "attempt", Decision: retry.Decision{State: delivery.Sent,
				Recipients: []delivery.RecipientOutcome{{Verdict: delivery.Accepted}}}}
			if r, _, err := h.Settle(context.WithoutCancel(taking), []ledger.Settlement{s}); err != nil || r[0] != ledger.Moved {
				t.Error(r, err)
			}
		})
		loops.Go(func() {
			if err := loop.Run(taking, working); err != nil {
				t.Error(err)
			}
		})
	}
	localtest.Eventually(t, 30*time.Second, func() error {
		if n := h.queued(t); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	endTaking()
	loops.Wait()
	if len(begun) != total || most.Load() > 32 {
		t.Errorf("%d were begun, at most %d at once", len(begun), most.Load())
	}
	for id, n := range begun {
		if n != 1 {
			t.Errorf("%s was begun %d times", id, n)
		}
	}
	var workers int
	if err := h.db.QueryRow(t.Context(), "SELECT count(*) FROM worker").Scan(&workers); err != nil || workers != 0 {
		t.Errorf("%d workers are left, %v", workers, err)
	}
}

// A lease that ends in the database (a worker that stood still) ends the work here,
// and what it held is the sweep's.
func TestALeaseThatLapsesInTheDatabase(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.accept(t, 3)
	causes := make(chan error, 3)
	taking, endTaking := context.WithCancel(t.Context())
	defer endTaking()
	loop := claim.NewLoop(claim.Config{Instance: "still", Slots: 16, LaneSlots: 8, Term: time.Second, Poll: 20 * time.Millisecond, IdlePoll: 50 * time.Millisecond, MaxClaim: 100,
		Log: localtest.Logger(t)}, h.Deliveries, func(ctx context.Context, _ ledger.Claimed, _ *claim.Lease) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
	})
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(taking, t.Context()) }()
	localtest.Eventually(t, 20*time.Second, func() error {
		if loop.InFlight() != 3 {
			return errors.New("not all in work")
		}
		return nil
	})
	if _, err := h.db.Exec(t.Context(), "UPDATE worker SET lease_until = clock_timestamp() - interval '5 seconds'"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if cause := <-causes; !errors.Is(cause, claim.ErrLapsed) {
			t.Errorf("cause %v", cause)
		}
	}
	found, err := h.Stuck(t.Context(), time.Hour, delivery.ID{}, 10)
	if err != nil || len(found) != 3 {
		t.Errorf("the sweep finds %d, %v", len(found), err)
	}
	localtest.Eventually(t, 20*time.Second, func() error {
		var alive int
		if err := h.db.QueryRow(t.Context(), "SELECT count(*) FROM worker WHERE lease_until > now()").Scan(&alive); err != nil || alive != 1 {
			return fmt.Errorf("%d living workers, %v", alive, err)
		}
		return nil
	})
	endTaking()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What the idle test assumes of a look and of a renewal.
func TestStatementsOfALookAndARenewal(t *testing.T) {
	t.Parallel()
	h := open(t)
	worker, err := h.Join(t.Context(), "x", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	before := h.count.n.Load()
	if _, err := h.Look(t.Context(), claim.Group{}, 1000); err != nil {
		t.Fatal(err)
	}
	if n := h.count.n.Load() - before; n != 4 {
		t.Errorf("a look is %d statements", n)
	}
	before = h.count.n.Load()
	if err := h.Renew(t.Context(), worker, time.Minute); err != nil {
		t.Fatal(err)
	}
	if n := h.count.n.Load() - before; n != 1 {
		t.Errorf("a renewal is %d statements", n)
	}
}
