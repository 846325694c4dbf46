package house_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/services/house/housetest"
)

// Four real senders and a mail server that goes away and comes back: it is left
// alone but for one probe in each half-open period over all of them, nothing is
// lost, rejections cost no attempt, and what has piled up is released slowly.
func TestAFlappingServerAndFourSenders(t *testing.T) {
	t.Parallel()
	const open = 2 * time.Second
	s := housetest.New(t, housetest.Options{Env: map[string]string{"CIRCUIT_BREAKER_FAILURE_THRESHOLD": "5", "CIRCUIT_BREAKER_OPEN_DURATION": open.String(),
		"RETRY_SCHEDULER_INTERVAL": "1s", "MAIL_SEND_CONCURRENCY": "2", "MAIL_SERVER_MAX_CONNECTIONS": "2", "MAIL_SERVER_MAX_MESSAGES_PER_CONNECTION": "1", "RETRY_MAIL_MAX_RETRIES": "40"}})
	s.Start(housetest.Watchdog, nil)
	var senders []*housetest.Program
	for range 4 {
		senders = append(senders, s.Exec(housetest.Sender, nil))
	}
	first := housetest.Mails("first", 20)
	s.Publish(first...)
	s.Settled(len(first), time.Minute)

	s.Sink.Away(true)
	second := housetest.Mails("second", 300)
	s.Publish(second...)
	breaker := func(want string) {
		t.Helper()
		localtest.Eventually(t, 30*time.Second, func() error {
			n, err := s.Count(`SELECT count(*) FROM lane WHERE breaker = $1`, want)
			if err == nil && n == 0 {
				err = fmt.Errorf("no lane is %s", want)
			}
			return err
		})
	}
	breaker("open")
	localtest.Eventually(t, 10*time.Second, func() error { // what was on its way when it opened
		n, err := s.Count(`SELECT count(*) FROM queue WHERE state = 'leased'`)
		if err == nil && n > 0 {
			err = fmt.Errorf("%d in work", n)
		}
		return err
	})
	version := func() int {
		n, err := s.Count(`SELECT version FROM lane WHERE key LIKE 'mail$%'`)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	knocks, v := s.Sink.Knocks(), version()
	attempts, err := s.Count(`SELECT count(*) FROM attempt`)
	if err != nil {
		t.Fatal(err)
	}
	localtest.Eventually(t, time.Minute, func() error { // four half-open periods: two changes each
		if n := version() - v; n < 8 {
			return fmt.Errorf("%d changes", n)
		}
		return nil
	})
	periods := (version()-v)/2 + 1 // one may have begun before we looked
	if n := s.Sink.Knocks() - knocks; n < 4 || n > periods {
		t.Errorf("the server was probed %d times in %d half-open periods", n, periods)
	}
	more, err := s.Count(`SELECT count(*) FROM attempt`)
	if err != nil || more-attempts > periods {
		t.Errorf("%d attempts in %d half-open periods: a rejection was counted (%v)", more-attempts, periods, err)
	}

	s.Sink.Away(false)
	s.Settled(len(first)+len(second), 2*time.Minute)
	audit := s.Audit()
	audit.Check(t)
	housetest.Report(t, audit.Lost(append(first, second...)))
	for _, c := range audit.Accounts {
		if c.Arrivals != 1 {
			t.Errorf("%s arrived %d times after %v", c.ID, c.Arrivals, c.Verdicts)
		}
	}
	var states []string
	for _, m := range s.Stream("POSTHOUSE_EVENTS") {
		if strings.HasPrefix(m.Subject, "posthouse.event.lane.") {
			states = append(states, strings.Split(m.Subject, ".")[3])
		}
	}
	told := strings.Join(states, " ")
	if !strings.HasPrefix(told, "open half_open open half_open") || !strings.Contains(told, "closed raised") {
		t.Errorf("told: %s", told)
	}
	// "onOpen is logged at WARN including the last failure cause; onHalfOpen and onClose
	// stay at INFO", each change by the one sender that has made it.
	logged := make(map[string]int)
	for _, p := range senders {
		for line := range strings.Lines(p.Log.String()) {
			var l struct{ Level, State, Cause, Message string }
			switch {
			case json.Unmarshal([]byte(line), &l) != nil || !strings.Contains(l.Message, "circuit breaker"):
				continue
			case l.State == "open" && (l.Level != "warn" || l.Cause == "" || !strings.Contains(l.Message, "last failure: "+l.Cause)),
				l.State != "open" && l.Level != "info":
				t.Errorf("logged: %s", line)
			}
			logged[l.State]++
		}
	}
	for _, state := range []string{"open", "half_open", "closed"} {
		if n := strings.Count(" "+told+" ", " "+state+" "); logged[state] != n {
			t.Errorf("%s was told %d times and logged %d times", state, n, logged[state])
		}
	}
}

// Limits hold over all senders, cost no attempt and write no row. POSTHOUSE_LONG=1
// watches a limit of 100 a minute for three minutes; otherwise it is a faster one.
func TestARateLimitOverFourSenders(t *testing.T) {
	t.Parallel()
	perMinute, n := 600, 150
	if os.Getenv("POSTHOUSE_LONG") == "1" {
		perMinute, n = 100, 350
	}
	s := housetest.New(t, housetest.Options{Env: map[string]string{"MAIL_SERVER_RATE_LIMIT_PER_MINUTE": fmt.Sprint(perMinute), "MAIL_SEND_CONCURRENCY": "4"}})
	for range 4 {
		s.Exec(housetest.Sender, nil)
	}
	s.Publish(housetest.Mails("acme", n)...)
	interval := time.Minute / time.Duration(perMinute-perMinute/10+1)
	s.Settled(n, time.Duration(n)*interval+2*time.Minute)
	entries := s.Sink.Entries()
	if len(entries) != n {
		t.Fatalf("%d mails arrived, want %d", len(entries), n)
	}
	// A tenth of the limit at once, then one each interval; in flight (16) may bunch.
	most := func(d time.Duration) int { return perMinute/10 + int(d/interval) + 1 + 16 }
	busiest := 0
	for i := range entries {
		for j := i; j < len(entries); j++ {
			if entries[j].Time.Sub(entries[i].Time) < time.Minute {
				busiest = max(busiest, j-i+1)
			}
			if d := entries[j].Time.Sub(entries[i].Time); j-i+1 > most(d) {
				t.Fatalf("%d mails within %s, at most %d", j-i+1, d, most(d))
			}
		}
	}
	if busiest > perMinute+16 {
		t.Errorf("%d mails within a minute, the limit is %d and 16 in flight", busiest, perMinute)
	}
	took := entries[len(entries)-1].Time.Sub(entries[0].Time)
	t.Logf("%d mails under a limit of %d a minute took %s, at most %d in any minute", n, perMinute, took, busiest)
	if fastest := time.Duration(n-perMinute/10-16) * interval; took < fastest || took > 3*fastest+5*time.Second {
		t.Errorf("%d mails took %s, at least %s", n, took, fastest)
	}
	odd, err := s.Count(`SELECT count(*) FROM delivery WHERE attempts <> 1 OR retries <> 0`)
	if err != nil || odd != 0 {
		t.Errorf("%d deliveries have more than one attempt (%v)", odd, err)
	}
}

// "A call that is rejected by a circuit breaker must not count as an attempt", ten
// thousand times; and the server's refusal of our credentials keeps what waits.
func TestRefusedCredentialsPark(t *testing.T) {
	t.Parallel()
	s := housetest.New(t, housetest.Options{Sink: smtpsink.Options{Username: "post", Password: "right"}, Env: map[string]string{
		"MAIL_SERVER_USERNAME": "post", "MAIL_SERVER_PASSWORD": "wrong", "CIRCUIT_BREAKER_ON_AUTH": "park", "RETRY_SCHEDULER_INTERVAL": "1s", "CIRCUIT_BREAKER_OPEN_DURATION": "1s"}})
	broken := s.Start(housetest.Sender, nil)
	mails := housetest.Mails("acme", 30)
	s.Publish(mails...)
	localtest.Eventually(t, 30*time.Second, func() error {
		n, err := s.Count(`SELECT count(*) FROM alarm WHERE raised AND name LIKE 'credentials-mail$%'`)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d alarms", n)
		}
		return err
	})
	failed, err := s.Count(`SELECT count(*) FROM delivery WHERE state <> 'pending' OR attempts > 0`)
	if err != nil || failed != 0 {
		t.Errorf("%d deliveries were touched (%v)", failed, err)
	}
	broken.Stop()
	s.Start(housetest.Sender, map[string]string{"MAIL_SERVER_PASSWORD": "right"})
	s.Settled(len(mails), time.Minute)
	s.Audit().Check(t)
	localtest.Eventually(t, 10*time.Second, func() error {
		n, err := s.Count(`SELECT count(*) FROM alarm WHERE raised`)
		if err == nil && n != 0 {
			err = fmt.Errorf("%d alarms", n)
		}
		return err
	})
}
