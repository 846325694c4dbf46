package house_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/services/house/housetest"
)

// A sender that is told to stop under load finishes what is in hand, gives back
// what it has not begun, and returns in time. Another goes on; nothing is unknown
// and nothing arrives twice. TestMain sees that no goroutine is left.
func TestStoppedSenderLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second
	s := housetest.New(t, housetest.Options{
		Sink: smtpsink.Options{Delay: func() time.Duration { return 200 * time.Millisecond }},
		Env:  map[string]string{"SHUTDOWN_TIMEOUT": timeout.String()},
	})
	first := s.Start(housetest.Sender, nil)
	published := housetest.Mails("acme", 1500)
	s.Publish(published...)
	taken := func(n int) {
		t.Helper()
		localtest.Eventually(t, 30*time.Second, func() error {
			if have := s.Sink.Count(); have < n {
				return fmt.Errorf("%d mails were taken", have)
			}
			return nil
		})
	}
	taken(100)
	if took := first.Stop(); took > timeout {
		t.Errorf("the sender took %s to stop, want less than %s", took, timeout)
	}
	// What it had in hand is stored, and what it had to tell is told or waits.
	leased, err := s.Count(`SELECT count(*) FROM queue WHERE state = 'leased'`)
	if err != nil || leased != 0 {
		t.Errorf("%d deliveries are still leased (%v)", leased, err)
	}
	workers, err := s.Count(`SELECT count(*) FROM worker`)
	if err != nil || workers != 0 {
		t.Errorf("%d workers are left (%v)", workers, err)
	}
	waiting, err := s.Count(`SELECT count(*) FROM outbox`)
	if err != nil || waiting != 0 {
		t.Errorf("%d outbox rows are left (%v)", waiting, err)
	}
	sent, err := s.Count(`SELECT count(*) FROM delivery WHERE state = 'sent'`)
	if err != nil || sent != s.Sink.Count() || sent >= len(published) {
		t.Errorf("%d deliveries are sent and %d mails were taken, want the same, and some left to do (%v)", sent, s.Sink.Count(), err)
	}

	// Three more, each stopped while the next one works.
	for round := range 3 {
		next := s.Start(housetest.Sender, nil)
		taken(s.Sink.Count() + 100)
		if round < 2 {
			next.Tell()
		}
	}
	s.Settled(len(published), time.Minute)
	audit := s.Audit()
	audit.Check(t)
	housetest.Report(t, audit.Lost(published))
	var faults []string
	for _, c := range audit.Accounts {
		if c.State != delivery.Sent || c.Arrivals != 1 || c.Attempts != 1 || len(c.Verdicts) != 1 {
			faults = append(faults, fmt.Sprintf("%s: %s after %v, arrived %d times", c.ID, c.State, c.Verdicts, c.Arrivals))
		}
	}
	housetest.Report(t, faults)
}

// A sender whose mail server does not answer is cut off when SHUTDOWN_TIMEOUT is
// over: it stores those attempts as unknown, in time, and returns.
func TestStopCutsOffWhatDoesNotEnd(t *testing.T) {
	t.Parallel()
	gate := housetest.NewGate(1, 20)
	defer gate.Open()
	s := housetest.New(t, housetest.Options{Sink: smtpsink.Options{Delay: gate.Delay}, Env: map[string]string{"SHUTDOWN_TIMEOUT": "1s"}})
	first := s.Start(housetest.Sender, nil)
	published := housetest.Mails("acme", 20)
	s.Publish(published...)
	localtest.Eventually(t, 30*time.Second, func() error {
		if n := gate.Arrived(); n < len(published) {
			return fmt.Errorf("%d mails are behind the final dot", n)
		}
		return nil
	})
	if took := first.Stop(); took > 3*time.Second+2*time.Second {
		t.Errorf("the sender took %s to stop", took)
	}
	leased, err := s.Count(`SELECT count(*) FROM queue WHERE state = 'leased'`)
	if err != nil || leased != 0 {
		t.Errorf("%d deliveries are still leased (%v)", leased, err)
	}
	gate.Open()
	s.Start(housetest.Sender, nil)
	s.Settled(len(published), time.Minute)
	audit := s.Audit()
	audit.Check(t)
	housetest.Report(t, audit.Lost(published))
	if unknown, twice := checkSent(t, audit); unknown != len(published) || twice != 0 {
		t.Errorf("%d attempts are unknown and %d mails arrived twice, want %d and none", unknown, twice, len(published))
	}
}
