package ledger_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/quota"
)

// metered is a book that charges, with a ceiling of n mails a month, and the
// subjects of what was told.
func metered(t *testing.T, n int64) (b *book, told func() []string) {
	t.Helper()
	b = open(t)
	var mu sync.Mutex
	var subjects []string
	cfg := quota.Config{Zone: "UTC", PlatformTenants: []string{"platform"}}
	if n >= 0 {
		cfg.MailMonthly = &n
	}
	b.UseQuotas(cfg, func(events outbox.Batch) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range events.Messages {
			subjects = append(subjects, m.Subject)
		}
	})
	return b, func() []string { mu.Lock(); defer mu.Unlock(); return append([]string(nil), subjects...) }
}

func (b *book) used(t *testing.T, bucket string) (n int64) {
	t.Helper()
	if err := b.db.QueryRow(t.Context(), "SELECT coalesce(sum(used), 0) FROM quota_usage WHERE bucket = $1", bucket).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// 200 at once against a quota of 150: exactly 150 charged, 50 refused.
func TestQuotaUnderConcurrency(t *testing.T) {
	t.Parallel()
	b, told := metered(t, 150)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			r := b.request("acme", fmt.Sprint("r", i))
			r.Raw = []byte("raw")
			if _, _, err := b.Accept(t.Context(), []ledger.Acceptance{r}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	ready := b.count(t, "SELECT count(*) FROM queue WHERE state = 'ready'")
	refused := b.count(t, "SELECT count(*) FROM delivery d JOIN content c ON c.delivery_id = d.id WHERE d.state = 'failed' AND NOT d.prepared AND d.answer ->> 'code' = 'MONTHLY_QUOTA_EXCEEDED' AND c.request = 'raw' AND c.prepared IS NULL")
	if ready != 150 || refused != 50 || b.used(t, "acme") != 150 {
		t.Errorf("%d accepted, %d refused, %d charged", ready, refused, b.used(t, "acme"))
	}
	if s := strings.Join(told(), " "); s != "posthouse.event.quota.warned.mail.acme posthouse.event.quota.exhausted.mail.acme" {
		t.Errorf("told %s", s)
	}
}

// A repeat, in the batch or later, and what can not be prepared cost nothing; a
// batch shares what is left in its order.
func TestQuotaChargesOncePerDelivery(t *testing.T) {
	t.Parallel()
	b, _ := metered(t, 3)
	one, two := b.request("acme", "one"), b.request("acme", "two")
	failed := b.request("acme", "failed")
	failed.Failure, failed.Prepared, failed.Raw = &delivery.Answer{Category: delivery.InvalidInput, Code: "CONTENT_INVALID"}, nil, []byte("raw")
	b.accept(t, one, one, two, failed)
	b.accept(t, one, two)
	if b.used(t, "acme") != 2 {
		t.Fatalf("%d charged for two deliveries", b.used(t, "acme"))
	}
	three, four := b.request("acme", "three"), b.request("acme", "four")
	three.Raw, four.Raw = []byte("raw"), []byte("raw")
	b.accept(t, one, three, four, b.request("other", "x"), b.request("platform", "y"))
	if b.used(t, "acme") != 3 || b.used(t, "other") != 1 || b.used(t, quota.Platform) != 1 {
		t.Errorf("charged: acme %d, other %d, platform %d", b.used(t, "acme"), b.used(t, "other"), b.used(t, quota.Platform))
	}
	for id, want := range map[delivery.ID]delivery.State{three.ID: delivery.Pending, four.ID: delivery.Failed} {
		if s, err := b.Status(t.Context(), id); err != nil || s.State != want {
			t.Errorf("%v %v, want %s", s.State, err, want)
		}
	}
}

func TestWithoutACeilingItIsCounted(t *testing.T) {
	t.Parallel()
	b, told := metered(t, -1)
	for i := range 20 {
		b.accept(t, b.request("acme", fmt.Sprint(i)))
	}
	if b.used(t, "acme") != 20 || len(told()) != 0 {
		t.Errorf("%d counted, told %q", b.used(t, "acme"), told())
	}
}

// A transaction that does not commit has charged nothing.
func TestAnUnfinishedAcceptanceChargesNothing(t *testing.T) {
	t.Parallel()
	b, _ := metered(t, 10)
	bad := b.request("acme", "bad")
	bad.Tenant = "acme\x00"
	if _, _, err := b.Accept(t.Context(), []ledger.Acceptance{b.request("acme", "good"), bad}); err == nil {
		t.Fatal("a NUL byte was stored")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, _ = b.Accept(ctx, []ledger.Acceptance{b.request("acme", "late")})
	if b.used(t, "acme") != 0 {
		t.Errorf("%d charged", b.used(t, "acme"))
	}
}

// Under hold what exceeds the quota waits for the next month, or for a higher
// quota; it is charged when it is prepared at last.
func TestHeldByQuota(t *testing.T) {
	t.Parallel()
	b, _ := metered(t, -1)
	q := quota.New(b.db, quota.Config{Zone: "UTC"})
	most := int64(1)
	cmd := delivery.QuotaCommand{Warrant: delivery.Warrant{By: "olga", Why: "contract"}, Bucket: "acme", Channel: "mail", Monthly: &most, Hold: true, Zone: "Europe/Vienna"}
	if err := q.Put(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	one, two := b.request("acme", "one"), b.request("acme", "two")
	two.Raw = []byte("raw")
	b.accept(t, one, two)
	s, err := b.Status(t.Context(), two.ID)
	if err != nil || s.State != delivery.Pending || s.Gate.Name != "quota" || s.Gate.Until == nil {
		t.Fatalf("%+v %v", s, err)
	}
	vienna, err := time.LoadLocation("Europe/Vienna")
	if err != nil {
		t.Fatal(err)
	}
	if d := s.Gate.Until.In(vienna); d.Day() != 1 || d.Hour() != 0 {
		t.Errorf("waits until %s", d)
	}
	if got := b.claimAll(t, 10); len(got) != 1 || got[0].ID != one.ID {
		t.Fatalf("claimed %d", len(got))
	}
	// Raised: due at once, and then charged.
	most = 5
	if err := q.Put(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	got := b.claimAll(t, 10)
	if len(got) == 0 {
		got = b.claimAll(t, 10) // promoted by the first look
	}
	if len(got) != 1 || got[0].ID != two.ID || got[0].IsPrepared || string(got[0].Request) != "raw" {
		t.Fatalf("after the raise: %+v", got)
	}
	done, err := b.Prepare(t.Context(), got[0], ledger.Content{Prepared: []byte("x"), Recipients: []string{"a@example.test"}, Lane: b.lane})
	if err != nil || !done.Stored || b.used(t, "acme") != 2 {
		t.Errorf("%+v %v, %d charged", done, err, b.used(t, "acme"))
	}
	usage, err := q.Usage(t.Context(), delivery.QuotaFilter{Bucket: "acme"})
	if err != nil || len(usage) != 1 || usage[0].Used != 2 || *usage[0].Ceiling != 5 || usage[0].Month != time.Now().In(vienna).Format("2006-01") {
		t.Errorf("%+v %v", usage, err)
	}
}

// A delivery that was refused and is retried by hand is prepared afresh, which
// charges it; while the quota is still used up it is refused again.
func TestRetryOfARefusedDelivery(t *testing.T) {
	t.Parallel()
	b, _ := metered(t, 0)
	r := b.request("acme", "one")
	r.Raw = []byte("raw")
	b.accept(t, r)
	if _, err := b.Retry(t.Context(), delivery.RetryCommand{Warrant: delivery.Warrant{By: "olga", Why: "try"}, IDs: []delivery.ID{r.ID}}); err != nil {
		t.Fatal(err)
	}
	got := b.claimAll(t, 1)
	if len(got) != 1 {
		t.Fatal(len(got))
	}
	content := ledger.Content{Prepared: []byte("x"), Recipients: []string{"a@example.test"}, Lane: b.lane}
	done, err := b.Prepare(t.Context(), got[0], content)
	if err != nil || done.Stored || done.Denied == nil || done.Denied.Hold || done.Denied.Answer().Code != "MONTHLY_QUOTA_EXCEEDED" {
		t.Fatalf("%+v %v", done, err)
	}
	if n := b.count(t, "SELECT count(*) FROM queue WHERE state = 'leased'"); n != 1 {
		t.Error("a denied preparation has moved the row")
	}
	q := quota.New(b.db, quota.Config{})
	most := int64(1)
	if err := q.Put(t.Context(), delivery.QuotaCommand{Warrant: delivery.Warrant{By: "olga", Why: "raise"}, Bucket: "acme", Channel: "mail", Monthly: &most}); err != nil {
		t.Fatal(err)
	}
	if done, err = b.Prepare(t.Context(), got[0], content); err != nil || !done.Stored || b.used(t, "acme") != 1 {
		t.Fatalf("%+v %v", done, err)
	}
}
