package house_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/services/house/housetest"
)

// inFlight is how many mails wait behind the final dot in the tests that take
// their sender away.
const inFlight = 500

// crowded are the settings of a sender that has all of them in work at once.
func crowded() map[string]string {
	n := fmt.Sprint(inFlight)
	return map[string]string{"SENDER_LEASE": "4s", "SENDER_SLOTS": n, "MAIL_SEND_CONCURRENCY": n, "MAIL_SERVER_MAX_CONNECTIONS": n, "WATCHDOG_SWEEP": "1s"}
}

// A sender is killed with 500 mails behind the final dot, while the mail server
// is answering: a third of them it never takes, some it has answered, the rest it
// takes without anybody to tell. A new one and the watchdog bring all of them
// home; what arrived twice is recorded as unknown.
func TestKilledSenderLosesNothing(t *testing.T) {
	t.Parallel()
	gate := housetest.NewGate(3, inFlight)
	defer gate.Open()
	s := housetest.New(t, housetest.Options{Env: crowded(), Sink: smtpsink.Options{Delay: gate.Delay}})
	s.Start(housetest.Watchdog, nil)
	victim := s.Exec(housetest.Sender, nil)
	published := housetest.Mails("acme", inFlight+100)
	s.Publish(published...)
	localtest.Eventually(t, time.Minute, func() error {
		if n := gate.Arrived(); n < inFlight {
			return fmt.Errorf("%d mails are behind the final dot", n)
		}
		return nil
	})
	gate.Let(100) // it dies in the middle of these
	localtest.Eventually(t, 10*time.Second, func() error {
		if n := s.Sink.Count(); n < 50 {
			return fmt.Errorf("%d mails were taken", n)
		}
		return nil
	})
	victim.Kill()
	localtest.Eventually(t, 10*time.Second, func() error { // what it had begun to say, the database still finishes
		n, err := s.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'posthouse-sender'`)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d sessions of the dead sender", n)
		}
		return err
	})
	held, err := s.Count(`SELECT count(*) FROM queue WHERE state = 'leased'`)
	if err != nil {
		t.Fatal(err)
	}
	if held < inFlight/2 {
		t.Fatalf("the dead sender held %d deliveries, too few to prove anything", held)
	}
	gate.Open()

	s.Exec(housetest.Sender, nil)
	s.Settled(len(published), time.Minute)
	audit := s.Audit()
	audit.Check(t)
	housetest.Report(t, audit.Lost(published))
	unknown, twice := checkSent(t, audit)
	if unknown != held {
		t.Errorf("%d deliveries have an attempt of unknown outcome, want the %d that the dead sender held", unknown, held)
	}
	if twice == 0 || twice >= unknown {
		t.Errorf("%d of %d unknown ones arrived twice: want some of them, and not all", twice, unknown)
	}
}

// Senders are killed again and again while they take requests in against a quota.
// Whether one dies before its transaction, in it, or before the acknowledgement:
// what is used is what was prepared, and the quota is used up exactly.
func TestKilledSendersDoNotOverCountAQuota(t *testing.T) {
	t.Parallel()
	const requests, ceiling, kills = 1500, 1000, 5
	s := housetest.New(t, housetest.Options{Env: map[string]string{"QUOTA_MAIL_MONTHLY_DEFAULT": fmt.Sprint(ceiling), "INTAKE_BATCH": "10",
		"SENDER_LEASE": "2s", "WATCHDOG_SWEEP": "1s", "RETRY_MAIL_MAX_RETRIES": "40"}})
	s.Start(housetest.Watchdog, nil)
	published := housetest.Mails("acme", requests)
	s.Publish(published...)
	taken := func() int {
		t.Helper()
		n, err := s.Count(`SELECT count(*) FROM delivery`)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for i := range kills {
		victim := s.Exec(housetest.Sender, nil)
		before := taken()
		localtest.Eventually(t, time.Minute, func() error {
			if n := taken(); n < before+requests/(2*kills) {
				return fmt.Errorf("%d requests were taken in", n-before)
			}
			return nil
		})
		victim.Kill()
		if n := taken(); n >= requests {
			t.Fatalf("kill %d came when all was taken in: it proves nothing", i+1)
		}
	}
	s.Exec(housetest.Sender, nil)
	s.Settled(requests, 3*time.Minute)
	used, err := s.Count(`SELECT used FROM quota_usage WHERE bucket = 'acme' AND channel = 'mail'`)
	if err != nil {
		t.Fatal(err)
	}
	prepared, err := s.Count(`SELECT count(*) FROM delivery WHERE state = 'sent'`)
	if err != nil || used != ceiling || prepared != ceiling {
		t.Errorf("%d are charged and %d were sent of a quota of %d (%v)", used, prepared, ceiling, err)
	}
	refused, err := s.Count(`SELECT count(*) FROM delivery WHERE state = 'failed' AND answer ->> 'code' = 'MONTHLY_QUOTA_EXCEEDED' AND attempts = 0`)
	if err != nil || refused != requests-ceiling {
		t.Errorf("%d were refused for the quota, want %d (%v)", refused, requests-ceiling, err)
	}
	audit := s.Audit()
	audit.Check(t)
	housetest.Report(t, audit.Lost(published))
}

// A sender is stopped beyond its lease and another has its work behind the final
// dot when it goes on and hears the answers to its own mails. Its results are kept
// as evidence and change nothing; then it comes back and takes new work.
func TestStalledSenderChangesNothing(t *testing.T) {
	t.Parallel()
	gate := housetest.NewGate(3, inFlight)
	defer gate.Open()
	s := housetest.New(t, housetest.Options{Env: crowded(), Sink: smtpsink.Options{Delay: gate.Delay}})
	s.Start(housetest.Watchdog, nil)
	stalled := s.Exec(housetest.Sender, nil)
	published := housetest.Mails("acme", inFlight)
	s.Publish(published...)
	arrived := func(n int) {
		t.Helper()
		localtest.Eventually(t, time.Minute, func() error {
			if have := gate.Arrived(); have < n {
				return fmt.Errorf("%d mails are behind the final dot, want %d", have, n)
			}
			return nil
		})
	}
	arrived(inFlight)
	stalled.Signal(syscall.SIGSTOP)
	other := s.Start(housetest.Sender, nil)
	arrived(2 * inFlight)
	gate.Let(inFlight) // the answers to the stopped one wait in its sockets
	const taken = inFlight - inFlight/3
	if err := s.Sink.Wait(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	var before string
	if err := s.DB.QueryRow(t.Context(), `SELECT clock_timestamp()::text`).Scan(&before); err != nil {
		t.Fatal(err)
	}
	stalled.Signal(syscall.SIGCONT)
	localtest.Eventually(t, 40*time.Second, func() error { // it comes back when the last of its results is told
		n, err := s.Count(`SELECT count(*) FROM worker WHERE instance = $1 AND started_at > $2::text::timestamptz`, stalled.Log.Line("ready")["instance"], before)
		if err == nil && n == 0 {
			err = errors.New("it has not come back under a new lease")
		}
		return err
	})
	// Some are cut off by the lost lease just before they hear their answer.
	late, err := s.Count(`SELECT count(*) FROM attempt WHERE verdict = 'late'`)
	if err != nil || late == 0 || late > taken {
		t.Errorf("%d late results are kept, want some and at most %d (%v)", late, taken, err)
	}
	moved, err := s.Count(`SELECT count(*) FROM delivery WHERE state <> 'retry' OR version <> 2 OR attempts <> 1`)
	if err != nil || moved != 0 {
		t.Errorf("%d deliveries were moved by the one that had lost them (%v)", moved, err)
	}
	leased, err := s.Count(`SELECT count(*) FROM queue WHERE state = 'leased' AND fence = 2`)
	if err != nil || leased != inFlight {
		t.Errorf("the other sender holds %d deliveries, want all %d (%v)", leased, inFlight, err)
	}
	gate.Open()
	s.Settled(len(published), time.Minute)

	other.Stop()
	more := housetest.Mails("later", 50)
	s.Publish(more...)
	s.Settled(len(published)+len(more), time.Minute)
	audit := s.Audit()
	audit.Check(t)
	housetest.Report(t, audit.Lost(append(published, more...)))
	if unknown, twice := checkSent(t, audit); unknown != inFlight || twice != taken {
		t.Errorf("%d attempts are unknown and %d mails arrived twice, want %d and %d", unknown, twice, inFlight, taken)
	}
}

// checkSent reports what did not end in sent and what arrived twice without an
// unknown attempt; it counts deliveries with such an attempt, and those among
// them that arrived twice.
func checkSent(t *testing.T, audit *housetest.Audit) (unknown, twice int) {
	t.Helper()
	var faults []string
	for _, c := range audit.Accounts {
		switch {
		case c.State != delivery.Sent:
			faults = append(faults, fmt.Sprintf("%s ended in %s", c.ID, c.State))
		case c.Unknown() == 0 && c.Arrivals != 1:
			faults = append(faults, fmt.Sprintf("%s arrived %d times without an unknown attempt", c.ID, c.Arrivals))
		}
		if c.Unknown() > 0 {
			unknown++
			if c.Arrivals > 1 {
				twice++
			}
		}
	}
	housetest.Report(t, faults)
	return unknown, twice
}
