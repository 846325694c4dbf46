package watchdog

import (
	"crypto/sha256"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/streams"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// site is a watchdog on a database and a NATS server of its own. Nothing runs in
// it: a test calls the rounds. What is handed to the relay waits until the test
// publishes it.
type site struct {
	*watchdog

	t    *testing.T
	db   *pgxpool.Pool
	lane int32

	mu     sync.Mutex
	handed []outbox.Batch
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := join(t, localtest.Postgres(t), localtest.NATS(t))
	var err error
	if s.lane, err = s.book.Lane(t.Context(), "mail$test", "delivery"); err != nil {
		t.Fatal(err)
	}
	return s
}

// join is another watchdog of the same house.
func join(t *testing.T, databaseURL, natsURL string) *site {
	t.Helper()
	db, err := pgxpool.New(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	nc, err := nats.Connect(natsURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	publisher, err := bus.NewPublisher(nc, 0)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := daemon.Load[Config]([]string{"DATABASE_URL=" + databaseURL, "WATCHDOG_REPLAY_RATE=100000"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, db: db}
	p := &daemon.Process{Name: "watchdog", Instance: "test-" + delivery.NewID().String(), Log: localtest.Logger(t), DB: db, NATS: nc, Meter: noop.NewMeterProvider().Meter("")}
	if s.watchdog, err = newWatchdog(p, cfg, publisher, s.take); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *site) take(b outbox.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handed = append(s.handed, b)
}

// publish does what the relay would with all that has been handed over.
func (s *site) publish() {
	s.t.Helper()
	s.mu.Lock()
	handed := s.handed
	s.handed = nil
	s.mu.Unlock()
	for _, b := range handed {
		if failed := (outbox.JetStream{Bus: s.bus}).Publish(s.t.Context(), b.Messages); len(failed) > 0 {
			s.t.Fatal(failed)
		}
		s.exec(`DELETE FROM outbox WHERE id = $1`, [16]byte(b.ID))
	}
}

func (s *site) exec(sql string, args ...any) {
	s.t.Helper()
	if _, err := s.db.Exec(s.t.Context(), sql, args...); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// value reads one value.
func value[T any](s *site, sql string, args ...any) T {
	s.t.Helper()
	var v T
	if err := s.db.QueryRow(s.t.Context(), sql, args...).Scan(&v); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// accept books n deliveries of a tenant; their events are handed over.
func (s *site) accept(tenant string, n int) []delivery.ID {
	s.t.Helper()
	requests := make([]ledger.Acceptance, n)
	ids := make([]delivery.ID, n)
	for i := range requests {
		ids[i] = delivery.NewID()
		requests[i] = ledger.Acceptance{ID: ids[i], Tenant: tenant, Channel: delivery.Mail, RequestID: ids[i].String(), BodyHash: sha256.Sum256(ids[i][:]),
			Class: delivery.Transactional, Lane: s.lane, Recipients: []string{"ada@example.test"}, Prepared: []byte("{}")}
	}
	_, batch, err := s.book.Accept(s.t.Context(), requests)
	if err != nil {
		s.t.Fatal(err)
	}
	s.take(batch)
	return ids
}

// claim takes everything that is ready, for a worker with a lease of that term.
func (s *site) claim(term time.Duration) []ledger.Claimed {
	s.t.Helper()
	work := ledger.Deliveries{Ledger: s.book}
	worker, err := s.book.Join(s.t.Context(), "test", term)
	if err != nil {
		s.t.Fatal(err)
	}
	glance, err := work.Look(s.t.Context(), claim.Group{}, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	var turns []claim.Turn
	for _, f := range glance.Found {
		turns = append(turns, claim.Turn{Group: f.Group, N: 1000})
	}
	taken, _, err := work.Claim(s.t.Context(), worker, turns)
	if err != nil {
		s.t.Fatal(err)
	}
	return taken
}

// die makes every lease lapse a minute ago.
func (s *site) die() { s.exec(`UPDATE worker SET lease_until = now() - interval '1 minute'`) }

// entry is one message of the event stream.
type entry struct {
	sequence         uint64
	id, msgID        string
	subject, content string
}

// entries reads the whole event stream.
func (s *site) entries() []entry {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), streams.Events)
	if err != nil {
		s.t.Fatal(err)
	}
	state := stream.CachedInfo().State
	var all []entry
	for seq := state.FirstSeq; seq <= state.LastSeq && state.Msgs > 0; seq++ {
		m, err := stream.GetMsg(s.t.Context(), seq)
		if err != nil {
			continue // deleted
		}
		all = append(all, entry{sequence: seq, id: m.Header.Get(bus.HeaderEventID), msgID: m.Header.Get(bus.HeaderMsgID), subject: m.Subject, content: string(m.Data)})
	}
	return all
}

// lose deletes messages from the event stream.
func (s *site) lose(entries ...entry) {
	s.t.Helper()
	stream, err := s.js.Stream(s.t.Context(), streams.Events)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		if err := stream.DeleteMsg(s.t.Context(), e.sequence); err != nil {
			s.t.Fatal(err)
		}
	}
}

// loseAll deletes the event stream and makes it anew.
func (s *site) loseAll() {
	s.t.Helper()
	if err := s.js.DeleteStream(s.t.Context(), streams.Events); err != nil {
		s.t.Fatal(err)
	}
	if _, err := streams.Apply(s.t.Context(), s.js, streams.Options{MaxBytes: 256 << 20}); err != nil {
		s.t.Fatal(err)
	}
}

// compare fails unless the stream tells exactly what the book says, each event at
// most `times` times.
func (s *site) compare(times int) {
	s.t.Helper()
	type said struct{ subject, content string }
	booked := make(map[string]said)
	rows, err := s.db.Query(s.t.Context(), `SELECT aggregate, version, subject, body FROM event`)
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id [16]byte
		var version int
		var subject string
		var body []byte
		if err := rows.Scan(&id, &version, &subject, &body); err != nil {
			s.t.Fatal(err)
		}
		booked[delivery.EventID(id, version)] = said{subject, string(body)}
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	seen := make(map[string]int)
	for _, e := range s.entries() {
		if b, ok := booked[e.id]; !ok || b.subject != e.subject || b.content != e.content {
			s.t.Errorf("the stream says %+v, the book %+v", e, b)
		}
		if seen[e.id]++; seen[e.id] > times {
			s.t.Errorf("event %s is there %d times", e.id, seen[e.id])
		}
	}
	if len(seen) != len(booked) {
		s.t.Errorf("the stream has %d events, the book %d", len(seen), len(booked))
	}
}

// alerts lists what has been handed over about alarms: "<subject tail> <id>".
func (s *site) alerts() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []string{}
	for _, b := range s.handed {
		for _, m := range b.Messages {
			if e, err := streams.ParseEvent(m.Subject); err == nil && e.Kind == streams.KindAlert {
				list = append(list, fmt.Sprintf("%s %s", e.State, m.ID))
			}
		}
	}
	slices.Sort(list)
	return list
}

func always() error { return nil }
