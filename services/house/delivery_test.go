package house_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/services/house/housetest"
)

// Two senders, a watchdog and the dead letters work on one book: each of 10 000
// requests of five tenants, which use the same ids, arrives once, and the event
// stream tells what the book does.
func TestEachRequestArrivesOnceAndIsTold(t *testing.T) {
	t.Parallel()
	const tenants, each = 5, 2000
	s := housetest.New(t, housetest.Options{Env: map[string]string{"SENDER_LEASE": "10s"}})
	first := s.Start(housetest.Sender, nil)
	second := s.Start(housetest.Sender, nil)
	s.Start(housetest.Watchdog, nil)
	s.Start(housetest.DeadLetter, nil)

	classes := []string{"otp", "transactional", "bulk"}
	var published []*nats.Msg
	for i := range each {
		for tenant := range tenants {
			r := delivery.Request{ID: fmt.Sprintf("r-%05d", i), Class: classes[i%len(classes)]}
			r.To, r.Subject, r.Text = []string{fmt.Sprintf("to-%d-%d@example.org", tenant, i)}, "hello", "world"
			if i%50 == 7 { // refused once for now, so that some take two attempts
				r.To[0] = fmt.Sprintf("defer-1+%d-%d@example.org", tenant, i)
			}
			published = append(published, housetest.Request(fmt.Sprintf("tenant-%d", tenant), r))
		}
	}
	began := time.Now()
	s.Publish(published...)
	s.Settled(len(published), 100*time.Second)
	t.Logf("%d requests in %s", len(published), time.Since(began).Round(time.Millisecond))

	audit := s.Audit()
	audit.Check(t)
	housetest.Report(t, audit.Lost(published))
	var faults []string
	retried := 0
	for _, c := range audit.Accounts {
		if c.State != delivery.Sent || c.Arrivals != 1 {
			faults = append(faults, fmt.Sprintf("%s: %s after %v, arrived %d times", c.ID, c.State, c.Verdicts, c.Arrivals))
		}
		if c.Version == 3 {
			retried++
		}
	}
	if want := len(published) / 50; retried != want {
		faults = append(faults, fmt.Sprintf("%d took two attempts, want %d", retried, want))
	}
	housetest.Report(t, faults)
	for _, v := range []*housetest.Service{first, second} {
		v.Stop()
	}
	busy, err := s.Count(`SELECT count(DISTINCT worker) FROM attempt`)
	if err != nil || busy < 2 {
		t.Errorf("%d senders worked, want both (%v)", busy, err)
	}
	left, err := s.Count(`SELECT count(*) FROM worker`)
	if err != nil || left != 0 {
		t.Errorf("%d workers are left after both senders have gone (%v)", left, err)
	}
}
