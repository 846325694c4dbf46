package docket_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

type book struct {
	*docket.Docket
	ledger *ledger.Ledger
	db     *pgxpool.Pool
	policy document.Policy
}

func open(t *testing.T, change func(*document.Policy)) *book {
	t.Helper()
	db, err := pgxpool.New(t.Context(), localtest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	b := &book{db: db, ledger: ledger.New(db), policy: document.DefaultPolicy()}
	if change != nil {
		change(&b.policy)
	}
	if b.Docket, err = docket.Open(t.Context(), db, b.ledger, &b.policy); err != nil {
		t.Fatal(err)
	}
	return b
}

func invoice(n string) docket.Reception {
	at := time.Now().Add(-time.Second).UTC().Truncate(time.Microsecond)
	return docket.Reception{Tenant: "acme", Body: []byte("<invoice>" + n + "</invoice>"), In: &document.Inbound{Version: 1, AS4MessageID: "as4-" + n, SBDHInstanceID: "sbdh-" + n,
		SenderID: "iso6523-actorid-upis::9915:sender", ReceiverID: "iso6523-actorid-upis::9915:receiver", DocTypeID: "busdox-docid-qns::invoice", ProcessID: "cenbii-procid-ubl::p1",
		C1Country: "AT", C2SeatID: "POP000306", ReceivedAt: at, AS4At: &at, Kind: document.Business}}
}

func (b *book) receive(t *testing.T, r docket.Reception) docket.Taken {
	t.Helper()
	taken, err := b.Receive(t.Context(), r, docket.Duplicates{AS4: docket.Reject, SBDH: docket.Reject})
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

func (b *book) claim(t *testing.T, k *docket.Kind, n int) []docket.Claimed {
	t.Helper()
	w, err := k.Join(t.Context(), "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	g, err := k.Look(t.Context(), claim.Group{}, 100)
	if err != nil {
		t.Fatal(err)
	}
	var turns []claim.Turn
	for _, f := range g.Found {
		if !f.Shut {
			turns = append(turns, claim.Turn{Group: f.Group, N: n})
		}
	}
	if len(turns) == 0 {
		return nil
	}
	taken, _, err := k.Claim(t.Context(), w, turns)
	if err != nil {
		t.Fatal(err)
	}
	return taken
}

// attempted settles an attempt to forward.
func (b *book) attempted(t *testing.T, c docket.Claimed, a document.Attempt) docket.Moved {
	t.Helper()
	m, err := b.Settle(t.Context(), c, &docket.Attempt{Verdict: a.Verdict, Answer: a.Answer}, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
		return f.Attempted(a, &b.policy, now)
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (b *book) status(t *testing.T, id delivery.ID) *document.Status {
	t.Helper()
	s, err := b.Status(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (b *book) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	if err := b.db.QueryRow(t.Context(), sql, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func (b *book) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := b.db.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

// A document from its reception to its forwarding: the answer to C2 is a delivery,
// accepted in the same transaction, on a lane that rests.
func TestOneDocumentFromReceptionToItsAnswer(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	r := invoice("1")
	taken := b.receive(t, r)
	if !taken.Fresh || len(taken.Published.Messages) != 1 || taken.Published.Messages[0].Subject != "posthouse.event.document.received._.acme" {
		t.Fatalf("%+v", taken)
	}
	if body, err := b.Body(t.Context(), taken.ID); err != nil || string(body) != string(r.Body) {
		t.Fatal(string(body), err)
	}
	got := b.claim(t, b.Documents(), 10)
	if len(got) != 1 || got[0].ID != taken.ID || got[0].ReceiverID != r.In.ReceiverID || got[0].Gate.Key != docket.ForwarderLane {
		t.Fatalf("%+v", got)
	}
	m := b.attempted(t, got[0], document.Attempt{Verdict: delivery.Accepted, Confirmed: true, C4Country: "AT"})
	if m.Decision.To != document.Forwarded || len(m.Published) != 2 {
		t.Fatalf("%+v", m)
	}
	s := b.status(t, taken.ID)
	if s.State != document.Forwarded || s.MLS.Code != document.AP || s.MLS.Status != document.MLSClaimed || s.C4Country != "AT" || s.Attempts != 1 || len(s.Tried) != 1 || len(s.Journey) != 2 || s.Gate.Name != "final" {
		t.Errorf("%+v", s)
	}
	answer, err := b.ledger.Status(t.Context(), s.MLS.Delivery)
	if err != nil || answer.State != delivery.Pending || answer.Channel != docket.AS4 || answer.Gate.Name != "paused" || answer.RequestID != "mls-"+taken.ID.String() {
		t.Errorf("%+v %v", answer, err)
	}
	if n := b.count(t, `SELECT count(*) FROM queue WHERE kind = 'document'`); n != 0 {
		t.Errorf("%d documents left in the queue", n)
	}
	// Its result again, from a lost reply or another worker: nothing is written.
	if _, err := b.Settle(t.Context(), got[0], nil, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
		return f.Attempted(document.Attempt{Verdict: delivery.Refused}, &b.policy, now)
	}); !errors.Is(err, docket.ErrStale) {
		t.Errorf("settled again: %v", err)
	}
}

// The database decides what was seen before, in either id, however many come at once.
func TestRepeats(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	var wg sync.WaitGroup
	var mu sync.Mutex
	fresh, ids := 0, map[delivery.ID]bool{}
	for range 12 {
		wg.Go(func() {
			taken, err := b.Receive(t.Context(), invoice("1"), docket.Duplicates{AS4: docket.Reject, SBDH: docket.Reject})
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ids[taken.ID] = true
			if taken.Fresh {
				fresh++
			}
		})
	}
	wg.Wait()
	if fresh != 1 || len(ids) != 1 || b.count(t, `SELECT count(*) FROM document`) != 1 || b.count(t, `SELECT count(*) FROM event`) != 1 {
		t.Errorf("%d fresh, %d ids", fresh, len(ids))
	}
	again := invoice("1")
	again.In.AS4MessageID = "another" // C2 sends it in a new message
	taken := b.receive(t, again)
	if taken.Fresh || taken.Repeats != "sbdh" || taken.Differs || !ids[taken.ID] {
		t.Errorf("%+v", taken)
	}
	if n := b.count(t, `SELECT count(*) FROM document_key WHERE name = 'acme another'`); n != 0 {
		t.Error("a rejected repeat has left a key behind")
	}
	again.Body = []byte("<other/>")
	if taken = b.receive(t, again); !taken.Differs {
		t.Error("other bytes under the same id are not told")
	}
	other := invoice("1")
	other.In.SenderID, other.In.AS4MessageID = "iso6523-actorid-upis::9915:stranger", "yet another"
	if taken = b.receive(t, other); !taken.Fresh {
		t.Error("another sender's equal id was taken for a repeat")
	}
	foreign := invoice("1")
	foreign.Tenant = "globex"
	if taken = b.receive(t, foreign); !taken.Fresh {
		t.Error("one tenant's ids were taken for another's")
	}
	flagged, err := b.Receive(t.Context(), invoice("1"), docket.Duplicates{AS4: docket.StoreAndFlag, SBDH: docket.StoreAndFlag})
	if err != nil || !flagged.Fresh || flagged.Repeats != "as4" || b.status(t, flagged.ID).Duplicate != "as4" {
		t.Errorf("%+v %v", flagged, err)
	}
}

func TestRetriesThenDeadWithAB(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	id := b.receive(t, invoice("1")).ID
	refused := document.Attempt{Verdict: delivery.Refused, Answer: delivery.Answer{Category: delivery.Transient, Code: "HTTP_503"}}
	for n := 1; n <= 3; n++ {
		got := b.claim(t, b.Documents(), 1)
		if len(got) != 1 || got[0].Failures != n-1 {
			t.Fatalf("attempt %d: %+v", n, got)
		}
		refused.Next = time.Time{}
		if n < 3 {
			refused.Next = time.Now().Add(time.Hour)
		}
		b.attempted(t, got[0], refused)
		if n < 3 {
			if s := b.status(t, id); s.State != document.Retry || s.Gate.Name != "waiting" || s.Attempts != n {
				t.Fatalf("%+v", s)
			}
			if len(b.claim(t, b.Documents(), 1)) != 0 {
				t.Fatal("claimed before its time")
			}
			b.exec(t, `UPDATE queue SET due_at = now(), state = 'ready' WHERE kind = 'document'`)
		}
	}
	s := b.status(t, id)
	if s.State != document.Dead || s.MLS.Code != document.AB || len(s.Tried) != 3 {
		t.Errorf("%+v", s)
	}
	// Replayed by hand and forwarded at last: C2 is not told a second time.
	if _, err := b.Change(t.Context(), id, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
		return f.Replay(&b.policy, now)
	}, nil); err != nil {
		t.Fatal(err)
	}
	got := b.claim(t, b.Documents(), 1)
	if len(got) != 1 || got[0].Failures != 0 || got[0].Fence != 4 {
		t.Fatalf("%+v", got)
	}
	b.attempted(t, got[0], document.Attempt{Verdict: delivery.Accepted, Confirmed: true})
	if s = b.status(t, id); s.State != document.Forwarded || s.MLS.Code != document.AB || b.count(t, `SELECT count(*) FROM delivery WHERE channel = 'as4'`) != 1 {
		t.Errorf("%+v", s)
	}
}

// What the backend tells while its document is in work neither waits nor spoils the
// attempt; what an operator wants then is refused.
func TestANoteBesideAnAttempt(t *testing.T) {
	t.Parallel()
	b := open(t, func(p *document.Policy) { p.Trigger = document.TriggerAPI })
	id := b.receive(t, invoice("1")).ID
	got := b.claim(t, b.Documents(), 1)
	if _, err := b.Change(t.Context(), id, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
		return f.Replay(&b.policy, now)
	}, nil); !errors.Is(err, docket.ErrStale) {
		t.Errorf("an operator moved what is in work: %v", err)
	}
	if _, err := b.Change(t.Context(), id, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
		d, _, err := f.Report(document.Report{Code: document.RE, Text: "no", Issues: []document.MLSIssue{{Reason: document.BV, Field: "NA", Text: "wrong"}}}, &b.policy)
		return d, err
	}, nil); err != nil {
		t.Fatal(err)
	}
	b.attempted(t, got[0], document.Attempt{Verdict: delivery.Accepted})
	s := b.status(t, id)
	if s.State != document.Forwarded || s.MLS.Code != document.RE || s.Version != 3 || len(s.Journey) != 3 {
		t.Errorf("%+v", s)
	}
}

// Whoever comes first answers C2: the backend's word, the watchdog, many at once.
func TestOneAnswerWhoeverComesFirst(t *testing.T) {
	t.Parallel()
	b := open(t, func(p *document.Policy) { p.Trigger, p.APITimeout = document.TriggerAPI, time.Millisecond })
	var ids []delivery.ID
	for i := range 5 {
		ids = append(ids, b.receive(t, invoice(fmt.Sprint(i))).ID)
	}
	for _, c := range b.claim(t, b.Documents(), 10) {
		b.attempted(t, c, document.Attempt{Verdict: delivery.Accepted, Confirmed: true})
	}
	if wait, err := b.NextAnswer(t.Context()); err != nil || wait != 0 {
		t.Errorf("the next deadline is in %s (%v)", wait, err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			due, err := b.DueAnswers(t.Context(), 100)
			if err != nil {
				t.Error(err)
			}
			for _, id := range due {
				if _, _, err := b.Answer(t.Context(), id); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for _, id := range ids {
				_, err := b.Change(t.Context(), id, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
					d, _, err := f.Report(document.Report{Code: document.AP, Text: "ok"}, &b.policy)
					return d, err
				}, nil)
				if err != nil && !errors.Is(err, document.ErrMLSConflict) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := b.count(t, `SELECT count(*) FROM delivery WHERE channel = 'as4'`); n != len(ids) {
		t.Errorf("%d answers to %d documents", n, len(ids))
	}
	if n := b.count(t, `SELECT count(*) FROM mls_deadline`); n != 0 {
		t.Errorf("%d deadlines are left", n)
	}
	if n := b.count(t, `SELECT count(*) FROM document WHERE version <> 3 OR mls_code = '' OR mls_delivery IS NULL`); n != 0 {
		t.Errorf("%d documents are not as they should be", n)
	}
}

// A deferred document is verifier-retry's work until a verifier has spoken.
func TestDeferredAndBack(t *testing.T) {
	t.Parallel()
	b := open(t, func(p *document.Policy) { p.Verification, p.FailMode = true, document.DeferredMode })
	id := b.receive(t, invoice("1")).ID
	verified := func(c docket.Claimed, v document.Verdict) {
		t.Helper()
		if _, err := b.Settle(t.Context(), c, nil, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
			return f.Verified([]document.Result{{Verifier: "v", Verdict: v}}, &b.policy, now)
		}); err != nil {
			t.Fatal(err)
		}
	}
	verified(b.claim(t, b.Documents(), 1)[0], document.VerdictUnavailable)
	if s := b.status(t, id); s.State != document.Deferred || s.Gate.Name != "deferred" || s.Attempts != 0 {
		t.Fatalf("%+v", s)
	}
	b.exec(t, `UPDATE queue SET due_at = now(), state = 'ready'`)
	if got := b.claim(t, b.Documents(), 1); len(got) != 0 {
		t.Fatal("a forwarder took a deferred document")
	}
	got := b.claim(t, b.Deferred(), 1)
	if len(got) != 1 {
		t.Fatal("verifier-retry does not find it")
	}
	verified(got[0], document.VerdictUnavailable) // quiet: no event
	if s := b.status(t, id); s.Version != 2 {
		t.Errorf("%+v", s)
	}
	b.exec(t, `UPDATE queue SET due_at = now(), state = 'ready'`)
	verified(b.claim(t, b.Deferred(), 1)[0], document.VerdictPassed)
	if got = b.claim(t, b.Documents(), 1); len(got) != 1 || got[0].Verdict != document.VerdictPassed || got[0].State != document.Received {
		t.Fatalf("%+v", got)
	}
}

func TestStuckDocuments(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	id := b.receive(t, invoice("1")).ID
	got := b.claim(t, b.Documents(), 1)
	if found, err := b.Documents().Stuck(t.Context(), time.Hour, 10); err != nil || len(found) != 0 {
		t.Fatal(found, err)
	}
	b.exec(t, `UPDATE worker SET lease_until = now() - interval '1 minute'`)
	found, err := b.Documents().Stuck(t.Context(), time.Hour, 10)
	if err != nil || len(found) != 1 || found[0].Worker != got[0].Worker {
		t.Fatal(found, err)
	}
	if _, err := b.Settle(t.Context(), found[0], &docket.Attempt{Verdict: delivery.Unknown}, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
		return f.LeaseExpired(now.Add(time.Minute), &b.policy, now)
	}); err != nil {
		t.Fatal(err)
	}
	if s := b.status(t, id); s.State != document.Retry || len(s.Tried) != 1 || s.Tried[0].Verdict != "unknown" {
		t.Errorf("%+v", s)
	}
	// The worker that was thought dead changes nothing.
	if _, err := b.Settle(t.Context(), got[0], &docket.Attempt{Verdict: delivery.Accepted}, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
		return f.Attempted(document.Attempt{Verdict: delivery.Accepted}, &b.policy, now)
	}); !errors.Is(err, docket.ErrStale) {
		t.Errorf("a stale worker: %v", err)
	}
	if s := b.status(t, id); s.State != document.Retry || len(s.Tried) != 2 || s.Tried[1].Verdict != "late" {
		t.Errorf("its result is not kept as evidence: %+v", s.Tried)
	}
}

// A month with a document in it that is not finished stays; a finished one goes, with
// its bytes, and its keys are kept until they are old.
func TestMonthsOfDocuments(t *testing.T) {
	t.Parallel()
	b := open(t, func(p *document.Policy) { p.MLS = false })
	id := b.receive(t, invoice("1")).ID
	month := ledger.Month(time.Date(id.Time().UTC().Year(), id.Time().UTC().Month(), 1, 0, 0, 0, 0, time.UTC))
	b.exec(t, `DELETE FROM outbox`)
	if err := b.ledger.DropMonth(t.Context(), month, 0); !errors.Is(err, ledger.ErrMonthOpen) {
		t.Fatalf("a month with a document in the queue: %v", err)
	}
	b.attempted(t, b.claim(t, b.Documents(), 1)[0], document.Attempt{Verdict: delivery.Accepted})
	b.exec(t, `DELETE FROM outbox`)
	if removed, _, _, err := b.ledger.DeleteKeys(t.Context(), ledger.DocumentKeys, time.Now().Add(time.Hour), delivery.ID{}, 100); err != nil || removed != 0 {
		t.Fatalf("%d keys of a document that is there were removed (%v)", removed, err)
	}
	if err := b.ledger.DropMonth(t.Context(), month, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Body(t.Context(), id); !errors.Is(err, docket.ErrNotFound) {
		t.Errorf("its bytes are still there: %v", err)
	}
	if removed, _, _, err := b.ledger.DeleteKeys(t.Context(), ledger.DocumentKeys, time.Now().Add(-time.Hour), delivery.ID{}, 100); err != nil || removed != 0 {
		t.Errorf("%d young keys were removed (%v)", removed, err)
	}
	if removed, _, _, err := b.ledger.DeleteKeys(t.Context(), ledger.DocumentKeys, time.Now().Add(time.Hour), delivery.ID{}, 100); err != nil || removed != 2 {
		t.Errorf("%d of 2 keys were removed (%v)", removed, err)
	}
}
