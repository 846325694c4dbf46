package watchdog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/streams"
)

func TestAlarmsWaverNot(t *testing.T) {
	t.Parallel()
	raised := false
	for i, c := range []struct {
		value  float64
		unsure bool
		want   string
	}{
		{59, false, ""}, {60, false, "raised"}, {61, false, ""}, {59, false, ""}, {31, false, ""}, {10, true, ""}, {30, false, "cleared"}, {31, false, ""}, {59, false, ""}, {90, true, "raised"},
	} {
		state, change := judge(reading{value: c.value, threshold: 60, unsure: c.unsure}, raised)
		got := ""
		if change {
			got, raised = string(state), state == delivery.AlertRaised
		}
		if got != c.want {
			t.Fatalf("step %d, value %v: %q, want %q", i, c.value, got, c.want)
		}
	}
	if _, change := judge(reading{value: 1000}, false); change {
		t.Error("an alarm that is switched off rings")
	}
	if state, change := judge(reading{value: 1000}, true); !change || state != delivery.AlertCleared {
		t.Error("an alarm that was switched off stays raised")
	}
}

func (s *site) check() {
	s.t.Helper()
	if err := s.checkLag(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) raised() []string {
	s.t.Helper()
	all, err := s.book.Alarms(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	list := []string{}
	for _, a := range all {
		if a.Raised {
			list = append(list, a.Name)
		}
	}
	return list
}

// Eight watchdogs see the same: one event, in the outbox, on the right subject.
func TestAlarmIsRaisedOnceAndClearedOnce(t *testing.T) {
	t.Parallel()
	databaseURL, natsURL := localtest.Postgres(t), localtest.NATS(t)
	pack := make([]*site, 8)
	for i := range pack {
		pack[i] = join(t, databaseURL, natsURL)
	}
	together := func() []string {
		var wg sync.WaitGroup
		for _, s := range pack {
			wg.Go(func() {
				if err := s.checkLag(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		all := []string{}
		for _, s := range pack {
			all = append(all, s.alerts()...)
		}
		slices.Sort(all)
		return all
	}
	s := pack[0]
	s.exec(`INSERT INTO outbox (id, aggregates, versions, lease_until, created_at, tries) VALUES (uuid7_floor(now() - interval '2 minutes'), '{}', '{}', now() + interval '1 hour', now() - interval '2 minutes', 7)`)
	if got := together(); !slices.Equal(got, []string{"raised alert.outbox_age.1"}) {
		t.Fatal(got)
	}
	subjects, body := value[[]string](s, `SELECT subjects FROM outbox WHERE ids IS NOT NULL`), value[[][]byte](s, `SELECT bodies FROM outbox WHERE ids IS NOT NULL`)
	var alert delivery.Alert
	if err := json.Unmarshal(body[0], &alert); err != nil || len(subjects) != 1 || subjects[0] != streams.Event(streams.KindAlert, "raised", "", "") ||
		alert.Name != "outbox_age" || alert.Version != 1 || alert.Value < 120 || alert.Threshold != 60 || !strings.Contains(alert.Text, "refused it 7 times") {
		t.Fatalf("%v %+v %v", subjects, alert, err)
	}
	s.exec(`DELETE FROM outbox`)
	if got := together(); !slices.Equal(got, []string{"cleared alert.outbox_age.2", "raised alert.outbox_age.1"}) {
		t.Fatal(got)
	}
	s.exec(`INSERT INTO outbox (id, aggregates, versions, lease_until, created_at) VALUES (uuid7_floor(now() - interval '2 minutes'), '{}', '{}', now(), now() - interval '2 minutes')`)
	if got := together(); len(got) != 3 || got[2] != "raised alert.outbox_age.3" {
		t.Fatal(got)
	}
}

func TestLagOfReadyRows(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 3)
	s.publish()
	if s.check(); len(s.raised()) != 0 {
		t.Fatal(s.raised())
	}
	s.exec(`UPDATE queue SET due_at = now() - interval '1 hour'`)
	s.exec(`UPDATE lane SET updated_at = now() - interval '1 day'`)
	for _, c := range []struct {
		lane string
		want []string
	}{
		{`shut_until = now() + interval '1 hour', paused_until = NULL`, nil},
		{`shut_until = NULL, paused_until = 'infinity'`, nil},
		{`shut_until = now() - interval '1 minute', paused_until = NULL`, nil}, // it has been open for a minute only
		{`shut_until = NULL, paused_until = NULL`, []string{"ready_wait"}},
		{`paused_until = 'infinity'`, nil}, // nobody waits for a slot in a lane that a person has paused
	} {
		s.exec(`UPDATE lane SET ` + c.lane)
		if s.check(); !slices.Equal(s.raised(), append([]string{}, c.want...)) {
			t.Fatalf("%s: %v", c.lane, s.raised())
		}
	}
	s.exec(`UPDATE queue SET state = 'waiting', due_at = now() - interval '1 hour'`) // due, and no sender has looked
	if s.check(); !slices.Equal(s.raised(), []string{"ready_wait"}) {
		t.Fatal(s.raised())
	}
	s.exec(`UPDATE queue SET due_at = now() + interval '1 hour'`)
	if s.check(); len(s.raised()) != 0 {
		t.Fatal(s.raised())
	}
}

func TestLagOfSnapshotsAndDeadRows(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 100)
	s.publish()
	before, err := s.book.Lag(t.Context())
	if err != nil || before.Oldest > 5 {
		t.Fatalf("%+v %v", before, err)
	}
	tx, err := s.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, sql := range []string{`SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`, `SELECT count(*) FROM queue`} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		s.exec(`UPDATE queue SET version = version + 1`)
	}
	s.cfg.Lag.Transaction, s.cfg.Lag.Transactions, s.cfg.Lag.DeadRows = 100*time.Millisecond, 15, 1000
	localtest.Eventually(t, 30*time.Second, func() error { // the statistics come when they come
		s.check()
		if got := s.raised(); !slices.Equal(got, []string{"dead_rows", "old_snapshot", "old_transaction"}) {
			return fmt.Errorf("raised: %v", got)
		}
		return nil
	})
	g, err := s.book.Lag(t.Context())
	if err != nil || !strings.HasPrefix(g.OldestWhat, "session ") || !strings.HasPrefix(g.PinnedWhat, "session ") || g.Pinned < 20 {
		t.Fatalf("%+v %v", g, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	localtest.Eventually(t, 30*time.Second, func() error {
		s.exec(`VACUUM queue`)
		s.check()
		if got := s.raised(); len(got) != 0 {
			return fmt.Errorf("still raised: %v", got)
		}
		return nil
	})
}

func TestPulse(t *testing.T) {
	t.Parallel()
	var p pulse
	now := time.Now()
	info := func(delivered, floor, pending uint64, out int) *jetstream.ConsumerInfo {
		return &jetstream.ConsumerInfo{Stream: "S", Name: "sender", Config: jetstream.ConsumerConfig{Durable: "sender", MaxAckPending: 10},
			Delivered: jetstream.SequenceInfo{Consumer: delivered}, AckFloor: jetstream.SequenceInfo{Consumer: floor}, NumPending: pending, NumAckPending: out}
	}
	for i, c := range []struct {
		after  time.Duration
		info   *jetstream.ConsumerInfo
		value  float64
		unsure bool
	}{
		{0, info(5, 5, 100, 0), 0, true},                 // the first look: who knows
		{31 * time.Second, info(5, 5, 100, 0), 31, true}, // nothing given out since
		{10 * time.Second, info(6, 5, 99, 1), 0, false},  // it moves
		{20 * time.Second, info(6, 6, 99, 0), 20, false},
		{20 * time.Second, info(105, 6, 0, 99), 0, false},  // as many as may be out are out
		{20 * time.Second, info(105, 6, 0, 99), 20, false}, // and none comes back
		{time.Hour, info(105, 105, 0, 0), 0, false},        // idle
		{time.Second, info(105, 105, 7, 0), 1, false},      // the clock starts with the work
		{40 * time.Second, info(105, 105, 7, 0), 41, false},
	} {
		now = now.Add(c.after)
		r := p.look(now, []*jetstream.ConsumerInfo{c.info}, 30*time.Second)
		if len(r) != 1 || r[0].name != "consumer_stalled-sender" || r[0].value != c.value || r[0].unsure != c.unsure {
			t.Fatalf("step %d: %+v, want %v %v", i, r, c.value, c.unsure)
		}
	}
	if p.look(now, nil, 0); len(p.beats) != 0 {
		t.Error("a consumer that is gone is remembered")
	}
}

func TestLagOfAConsumer(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.cfg.Lag.Consumer = 50 * time.Millisecond
	for _, name := range []string{"sender", "somebody-elses"} {
		if _, err := s.js.CreateOrUpdateConsumer(t.Context(), streams.Requests, jetstream.ConsumerConfig{Durable: name, AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			t.Fatal(err)
		}
	}
	if s.check(); len(s.raised()) != 0 {
		t.Fatal(s.raised())
	}
	if _, err := s.js.Publish(t.Context(), streams.Send("mail", "acme"), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	localtest.Eventually(t, 10*time.Second, func() error {
		s.check()
		if got := s.raised(); !slices.Equal(got, []string{"consumer_stalled-sender"}) {
			return fmt.Errorf("raised: %v", got)
		}
		return nil
	})
	late := join(t, s.db.Config().ConnString(), s.nats.ConnectedUrl()) // it has seen nothing yet, and clears nothing
	if late.check(); len(late.raised()) != 1 {
		t.Fatal("a newcomer has cleared it")
	}
	if err := s.js.DeleteConsumer(t.Context(), streams.Requests, "sender"); err != nil {
		t.Fatal(err)
	}
	if s.check(); len(s.raised()) != 0 {
		t.Fatal(s.raised())
	}
}
