package house_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/services/house/housetest"
	"github.com/posthouse-io/posthouse/streams"
)

// ending is one way in which a delivery needs a person.
type ending struct {
	tenant string // one for each ending, so that a letter shows which it was
	state  delivery.State
	source streams.Source
	code   string
	make   func(i int) *nats.Msg
}

func endings() []ending {
	to := func(tenant, local string) func(int) *nats.Msg {
		return func(i int) *nats.Msg {
			return housetest.Mail(tenant, fmt.Sprintf("r-%03d", i), fmt.Sprintf("%s+%d@example.org", local, i))
		}
	}
	return []ending{
		{"refused", delivery.Failed, streams.SendFailed, "550", to("refused", "refuse")},
		{"unwanted", delivery.Failed, streams.SendFailed, "554", to("unwanted", "spam")},
		{"busy", delivery.Dead, streams.SendExhausted, "451", to("busy", "busy")},
		{"doubtful", delivery.Held, streams.Held, "", to("doubtful", "drop")},
		{"unreadable", delivery.Failed, streams.SendFailed, "CONTENT_INVALID", func(i int) *nats.Msg {
			return housetest.Mail("unreadable", fmt.Sprintf("r-%03d", i), "no address at all")
		}},
		{"late", delivery.Expired, streams.Expired, "EXPIRED", func(i int) *nats.Msg {
			r := delivery.Request{ID: fmt.Sprintf("r-%03d", i), ExpiresAt: new(time.Now().Add(-time.Second))}
			r.To, r.Subject, r.Text = []string{"a@example.org"}, "s", "t"
			return housetest.Request("late", r)
		}},
	}
}

// Each delivery that needs a person is archived once and told once, although one
// of three services is killed with a batch in hand, another is stopped, and
// everything is handed out a second time.
func TestDeadLettersOnceEach(t *testing.T) {
	t.Parallel()
	const each = 40
	s := housetest.New(t, housetest.Options{Env: map[string]string{"RETRY_MAIL_MAX_RETRIES": "1", "RETRY_MAIL_ON_UNKNOWN": "hold"}})
	victim := s.Exec(housetest.DeadLetter, nil)
	s.Start(housetest.Watchdog, nil)
	localtest.Eventually(t, 30*time.Second, func() error {
		if victim.Log.Line("ready") == nil {
			return fmt.Errorf("the one to be killed is not ready")
		}
		return nil
	})
	var published []*nats.Msg
	for i := range each {
		for _, e := range endings() {
			published = append(published, e.make(i))
		}
		published = append(published, housetest.Mail("fine", fmt.Sprintf("r-%03d", i), "a@example.org"))
	}
	letters := each * len(endings())

	// The archive is locked, so that the victim dies between taking and storing.
	lock, err := s.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(t.Context(), `LOCK TABLE dead_letter IN SHARE ROW EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	s.Publish(published...)
	s.Start(housetest.Sender, nil)
	localtest.Eventually(t, 30*time.Second, func() error {
		n, err := s.Count(`SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'posthouse-dead-letter' AND wait_event_type = 'Lock'`)
		if err == nil && n == 0 {
			err = fmt.Errorf("the victim has nothing in hand")
		}
		return err
	})
	victim.Kill()
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopped := s.Start(housetest.DeadLetter, nil)
	s.Start(housetest.DeadLetter, nil)
	archived := func(least int) func() error {
		return func() error {
			n, err := s.Count(`SELECT count(*) FROM dead_letter`)
			if err == nil && n < least {
				err = fmt.Errorf("%d letters are archived, want %d", n, least)
			}
			return err
		}
	}
	localtest.Eventually(t, 30*time.Second, archived(letters/3))
	stopped.Stop()
	localtest.Eventually(t, time.Minute, archived(letters)) // those of the victim come again after 30 s
	s.Settled(len(published), time.Minute)
	checkEndings(t, s, published)
	before := written(t, s)

	if err := s.JS.DeleteConsumer(t.Context(), streams.Events, "dead-letter"); err != nil {
		t.Fatal(err)
	}
	s.Start(housetest.DeadLetter, nil)
	localtest.Eventually(t, 30*time.Second, func() error { return replayed(s) })
	s.Settled(len(published), time.Minute)
	checkEndings(t, s, published)
	if after := written(t, s); after != before {
		t.Error("the replay has written to letters that were in the archive")
	}
}

// written changes with every write to a letter.
func written(t *testing.T, s *housetest.Site) (sum string) {
	t.Helper()
	const sql = `SELECT md5(string_agg(event_id || xmin::text, ' ' ORDER BY event_id)) FROM dead_letter`
	if err := s.DB.QueryRow(t.Context(), sql).Scan(&sum); err != nil {
		t.Fatal(err)
	}
	return sum
}

// replayed tells whether the consumer of final events is there and has nothing
// left.
func replayed(s *housetest.Site) error {
	c, err := s.JS.Consumer(s.T.Context(), streams.Events, "dead-letter")
	if err != nil {
		return err
	}
	info := c.CachedInfo()
	if info.NumPending > 0 || info.NumAckPending > 0 || info.Delivered.Consumer == 0 {
		return fmt.Errorf("%d pending, %d not acknowledged, %d handed out", info.NumPending, info.NumAckPending, info.Delivered.Consumer)
	}
	return nil
}

func checkEndings(t *testing.T, s *housetest.Site, published []*nats.Msg) {
	t.Helper()
	audit := s.Audit()
	audit.Check(t)
	housetest.Report(t, audit.Lost(published))
	told := map[string]*nats.Msg{}
	var faults []string
	for _, m := range s.Stream(streams.DeadLetter) {
		if told[housetest.EventID(m)] != nil {
			faults = append(faults, fmt.Sprintf("letter %s was told twice", housetest.EventID(m)))
		}
		told[housetest.EventID(m)] = m
	}
	wants := map[string]ending{}
	for _, e := range endings() {
		wants[e.tenant] = e
	}
	letters := 0
	for _, c := range audit.Accounts {
		e, dead := wants[c.Tenant]
		if !dead {
			if c.State != delivery.Sent {
				faults = append(faults, fmt.Sprintf("%s of %s is %s", c.RequestID, c.Tenant, c.State))
			}
			continue
		}
		letters++
		id := delivery.EventID(c.ID, c.Version)
		var letter delivery.Letter
		m := told["dlq."+id]
		if m == nil {
			faults = append(faults, fmt.Sprintf("%s of %s (%s): letter %s was not told", c.RequestID, c.Tenant, c.State, id))
			continue
		}
		if err := json.Unmarshal(m.Data, &letter); err != nil || letter.EventID != id || letter.ID == nil || *letter.ID != c.ID || letter.RequestID != c.RequestID ||
			c.State != e.state || letter.Source != string(e.source) || (e.code != "" && letter.Code != e.code) || m.Subject != streams.DLQ(e.source, "mail", c.Tenant) {
			faults = append(faults, fmt.Sprintf("%s of %s is %s and told on %s as %s (%v)", c.RequestID, c.Tenant, c.State, m.Subject, m.Data, err))
		}
		n, err := s.Count(`SELECT count(*) FROM dead_letter WHERE event_id = $1 AND source = $2 AND aggregate = $3`, id, string(e.source), [16]byte(c.ID))
		if err != nil || n != 1 {
			faults = append(faults, fmt.Sprintf("%s of %s: %d letters %s in the archive (%v)", c.RequestID, c.Tenant, n, id, err))
		}
	}
	if n, err := s.Count(`SELECT count(*) FROM dead_letter`); err != nil || n != letters || len(told) != letters {
		faults = append(faults, fmt.Sprintf("%d letters in the archive and %d on the stream, want %d (%v)", n, len(told), letters, err))
	}
	housetest.Report(t, faults)
}

// Messages on the subjects of final events that are no such events, and some that
// the database would not take as they are, end in the archive byte for byte, and
// keep no real letter from it.
func TestStrangeEventsKeepNoLetterBack(t *testing.T) {
	t.Parallel()
	s := housetest.New(t, housetest.Options{})
	s.Start(housetest.Sender, nil)
	subject := streams.Event(streams.KindDelivery, string(delivery.Failed), "mail", "acme")
	event := func(custom string) []byte {
		id := delivery.NewID()
		return fmt.Appendf(nil, `{"schema":1,"event":"%s.1","kind":"delivery","id":"%s","version":1,"state":"failed","tenant":"acme","channel":"mail","custom":%s}`, id, id, custom)
	}
	strange := [][]byte{
		nil, []byte("no JSON"), []byte("[]"), []byte(`{"state":"failed"}`),
		event("{\"a\":\"\xff\xfe\"}"),
		event(strings.Repeat("[", 9900) + strings.Repeat("]", 9900)),
	}
	for _, b := range strange {
		s.Publish(housetest.Raw(subject, b))
	}
	// A client's own text that is no UTF-8 must not come so far.
	s.Publish(housetest.Raw(sendAcme, []byte("{\"version\":1,\"id\":\"latin\",\"to\":[\"refuse@example.org\"],\"subject\":\"s\",\"text\":\"t\",\"custom\":{\"a\":\"caf\xe9\"}}")))
	s.Publish(housetest.Mail("acme", "real", "refuse@example.org"))
	s.Start(housetest.DeadLetter, nil)
	localtest.Eventually(t, 20*time.Second, func() error {
		real, err := s.Count(`SELECT count(*) FROM dead_letter WHERE source = 'send_failed' AND request_id = 'real'`)
		if err == nil && real != 1 {
			err = fmt.Errorf("%d real letters, want 1", real)
		}
		return err
	})
	localtest.Eventually(t, 20*time.Second, func() error { return replayed(s) })
	for _, b := range strange {
		if n, err := s.Count(`SELECT count(*) FROM dead_letter WHERE raw = $1 OR raw IS NULL AND convert_to(summary::text, 'UTF8') = $1`, append([]byte{}, b...)); err != nil || n != 1 {
			t.Errorf("%.60q: %d letters, want 1 (%v)", b, n, err)
		}
	}
	if n, err := s.Count(`SELECT count(*) FROM dead_letter WHERE source = 'poison' AND code = 'MALFORMED' AND reason = 'the body is not UTF-8'`); err != nil || n != 1 {
		t.Errorf("%d requests are refused for their encoding, want 1 (%v)", n, err)
	}
}
