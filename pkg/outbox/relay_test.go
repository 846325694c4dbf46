package outbox_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/streams"
)

func TestMain(m *testing.M) {
	code := localtest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// post is a database with an outbox, and a stream of events.
type post struct {
	t      *testing.T
	db     *pgxpool.Pool
	server *local.NATS
	js     jetstream.JetStream
	stream outbox.JetStream
}

func open(t *testing.T) *post {
	t.Helper()
	p := &post{t: t, server: localtest.NATSServer(t)}
	var err error
	if p.db, err = pgxpool.New(t.Context(), localtest.Postgres(t)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.db.Close)
	nc, err := nats.Connect(p.server.URL(), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	publisher, err := bus.NewPublisher(nc, 500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	p.stream = outbox.JetStream{Bus: publisher}
	if p.js, err = jetstream.New(nc); err != nil {
		t.Fatal(err)
	}
	return p
}

// batch writes n events and the outbox row that names them.
func (p *post) batch(n int) outbox.Batch {
	p.t.Helper()
	b := outbox.Batch{ID: uuid.Must(uuid.NewV7())}
	var ids [][16]byte
	var versions []int32
	for range n {
		id := delivery.NewID()
		subject := streams.Event(streams.KindDelivery, "sent", "mail", "acme")
		m := outbox.Message{ID: delivery.EventID(id, 1), Subject: subject, Body: []byte(`{"id":"` + id.String() + `"}`)}
		b.Messages, ids, versions = append(b.Messages, m), append(ids, id), append(versions, 1)
		p.exec(`INSERT INTO event (aggregate, version, kind, state, subject, body) VALUES ($1, 1, 'delivery', 'sent', $2, $3)`, [16]byte(id), subject, m.Body)
	}
	p.exec(outbox.Insert, [16]byte(b.ID), ids, versions)
	return b
}

func (p *post) exec(sql string, args ...any) {
	p.t.Helper()
	if _, err := p.db.Exec(p.t.Context(), sql, args...); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
}

func (p *post) rows() (n int) {
	p.t.Helper()
	if err := p.db.QueryRow(p.t.Context(), `SELECT count(*) FROM outbox`).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// abandon makes every row one whose writer has died.
func (p *post) abandon() {
	p.exec(`UPDATE outbox SET lease_until = clock_timestamp() - interval '1 second'`)
}

// stored lists the ids in the stream, in order.
func (p *post) stored() (ids []string) {
	p.t.Helper()
	stream, err := p.js.Stream(p.t.Context(), streams.Events)
	if err != nil {
		p.t.Fatal(err)
	}
	info, err := stream.Info(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := stream.GetMsg(p.t.Context(), seq)
		if err != nil {
			p.t.Fatal(err)
		}
		ids = append(ids, m.Header.Get(bus.HeaderEventID))
	}
	return ids
}

func (p *post) wantStored(batches ...outbox.Batch) {
	p.t.Helper()
	var want []string
	for _, b := range batches {
		for _, m := range b.Messages {
			want = append(want, m.ID)
		}
	}
	got := p.stored()
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		p.t.Errorf("the stream holds %d messages, want %d:\n%v\n%v", len(got), len(want), got, want)
	}
}

// running is a relay that the test ends.
type running struct {
	*outbox.Relay
	stop func()
}

func (p *post) run(publisher outbox.Publisher) running {
	p.t.Helper()
	r := outbox.NewRelay(outbox.Config{DB: p.db, Publisher: publisher, Poll: 30 * time.Millisecond, Log: localtest.Logger(p.t)})
	taking, endTaking := context.WithCancel(context.Background())
	working, endWorking := context.WithTimeout(context.Background(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(taking, working) }()
	stop := sync.OnceFunc(func() {
		endTaking()
		if err := <-ended; err != nil {
			p.t.Error(err)
		}
		endWorking()
	})
	p.t.Cleanup(stop)
	return running{r, stop}
}

func (p *post) drained() {
	p.t.Helper()
	localtest.Eventually(p.t, 30*time.Second, func() error {
		if n := p.rows(); n > 0 {
			return fmt.Errorf("%d rows are left", n)
		}
		return nil
	})
}

func TestHandedBatchesArePublishedAndRemoved(t *testing.T) {
	t.Parallel()
	p := open(t)
	r := p.run(p.stream)
	var all []outbox.Batch
	for i := range 20 {
		b := p.batch(1 + i%4)
		all = append(all, b)
		r.Hand(b)
	}
	r.Hand(outbox.Batch{}) // nothing to say
	p.drained()
	p.wantStored(all...)
	if r.Swept() != 0 || r.Published() != int64(len(p.stored())) {
		t.Errorf("published %d, swept %d", r.Published(), r.Swept())
	}
}

// Killed between the acknowledgement and the removal: the sweep says the same under
// the same ids, and the stream has it once.
func TestKilledBetweenPublishAndRemoval(t *testing.T) {
	t.Parallel()
	p := open(t)
	all := []outbox.Batch{p.batch(3), p.batch(1), p.batch(2)}
	for _, b := range all[:2] {
		if failed := p.stream.Publish(t.Context(), b.Messages); len(failed) > 0 {
			t.Fatal(failed)
		}
	}
	p.abandon()
	r := p.run(p.stream)
	p.drained()
	p.wantStored(all...)
	if r.Swept() != 3 {
		t.Errorf("swept %d", r.Swept())
	}
}

// A row under its writer's lease is left to it.
func TestASweepLeavesFreshRowsAlone(t *testing.T) {
	t.Parallel()
	p := open(t)
	fresh, old := p.batch(1), p.batch(1)
	p.exec(`UPDATE outbox SET lease_until = clock_timestamp() - interval '1 second' WHERE id = $1`, [16]byte(old.ID))
	r := p.run(p.stream)
	localtest.Eventually(t, 20*time.Second, func() error {
		if p.rows() != 1 {
			return errors.New("not yet")
		}
		return nil
	})
	p.wantStored(old)
	r.Hand(fresh)
	p.drained()
}

func TestNATSAwayForAWhile(t *testing.T) {
	t.Parallel()
	p := open(t)
	r := p.run(p.stream)
	all := []outbox.Batch{p.batch(2)}
	r.Hand(all[0])
	p.drained()
	if err := p.server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		b := p.batch(3)
		all = append(all, b)
		r.Hand(b)
	}
	// Down for about five seconds, with sweeps in between.
	until := time.Now().Add(5 * time.Second)
	localtest.Eventually(t, 20*time.Second, func() error {
		p.abandon()
		if time.Now().Before(until) {
			return errors.New("still down")
		}
		return nil
	})
	if n := p.rows(); n != 10 {
		t.Errorf("%d rows while nobody answers, want 10", n)
	}
	var tries int
	if err := p.db.QueryRow(t.Context(), `SELECT sum(tries) FROM outbox`).Scan(&tries); err != nil || tries != 0 {
		t.Errorf("%d tries were counted against messages that nobody refused, %v", tries, err)
	}
	if err := p.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.abandon()
	localtest.Eventually(t, 30*time.Second, func() error {
		p.abandon()
		if n := p.rows(); n > 0 {
			return fmt.Errorf("%d rows are left", n)
		}
		return nil
	})
	p.wantStored(all...)
}

// What the stream refuses waits longer and longer; its neighbours do not.
func TestARefusedMessageBlocksNobody(t *testing.T) {
	t.Parallel()
	p := open(t)
	bad := outbox.Batch{ID: uuid.Must(uuid.NewV7())}
	p.exec(outbox.InsertMessages, [16]byte(bad.ID), []string{"large"}, []string{streams.Event(streams.KindDelivery, "sent", "mail", "acme")}, [][]byte{make([]byte, 1<<20+1)})
	var good []outbox.Batch
	for range 5 {
		good = append(good, p.batch(2))
	}
	p.abandon()
	r := p.run(p.stream)
	localtest.Eventually(t, 30*time.Second, func() error {
		if n := p.rows(); n != 1 {
			return fmt.Errorf("%d rows", n)
		}
		return nil
	})
	p.wantStored(good...)
	for tries := 1; tries <= 13; tries++ { // time flies
		localtest.Eventually(t, 20*time.Second, func() error {
			var n int
			var wait float64
			if err := p.db.QueryRow(t.Context(), `SELECT tries, extract(epoch FROM lease_until - clock_timestamp())::float8 FROM outbox`).Scan(&n, &wait); err != nil {
				return err
			}
			if n != tries {
				return fmt.Errorf("%d tries, want %d", n, tries)
			}
			if want := min(float64(int(1)<<tries), 300); wait > want || wait < want-10 {
				t.Fatalf("after %d tries it waits %.1f s, want %.0f", n, wait, want)
			}
			return nil
		})
		p.abandon()
	}
	if r.Aside() != 1 {
		t.Errorf("%d rows count as put aside", r.Aside())
	}
}

// A row that commits after rows with later ids is seen all the same.
func TestRowsThatCommitOutOfOrder(t *testing.T) {
	t.Parallel()
	p := open(t)
	early := outbox.Batch{ID: uuid.Must(uuid.NewV7()), Messages: []outbox.Message{{ID: "early"}}}
	tx, err := p.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	subject := streams.Event(streams.KindDelivery, "sent", "mail", "acme")
	if _, err := tx.Exec(t.Context(), outbox.InsertMessages, [16]byte(early.ID), []string{"early"}, []string{subject}, [][]byte{[]byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `UPDATE outbox SET lease_until = clock_timestamp() - interval '1 hour'`); err != nil {
		t.Fatal(err)
	}
	late := p.batch(2)
	p.abandon()
	p.run(p.stream)
	p.drained()
	p.wantStored(late)
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.drained()
	p.wantStored(late, early)
}

// Two processes sweep the same outbox.
func TestTwoSweepersShareTheWork(t *testing.T) {
	t.Parallel()
	p := open(t)
	var all []outbox.Batch
	for range 120 {
		all = append(all, p.batch(1))
	}
	p.abandon()
	a, b := p.run(p.stream), p.run(p.stream)
	p.drained()
	p.wantStored(all...)
	a.stop()
	b.stop()
	if a.Swept()+b.Swept() != 120 {
		t.Errorf("swept %d and %d of 120 rows", a.Swept(), b.Swept())
	}
}

func TestShutdownDrains(t *testing.T) {
	t.Parallel()
	p := open(t)
	r := p.run(p.stream)
	var all []outbox.Batch
	for range 100 {
		all = append(all, p.batch(1))
	}
	for _, b := range all {
		r.Hand(b)
	}
	r.stop()
	if n := p.rows(); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	p.wantStored(all...)
}

// script is a publisher that answers as told.
type script struct {
	err   error
	calls atomic.Int64
}

func (s *script) Publish(_ context.Context, messages []outbox.Message) map[int]error {
	s.calls.Add(1)
	if s.err == nil {
		return nil
	}
	failed := map[int]error{}
	for i := range messages {
		failed[i] = fmt.Errorf("publish: %w", s.err)
	}
	return failed
}

// Nobody answering is no refusal: it costs no try, however long it lasts.
func TestNoAnswerIsNoRefusal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err     error
		refused bool
	}{{nats.ErrNoResponders, false}, {jetstream.ErrNoStreamResponse, false}, {jetstream.ErrAsyncPublishTimeout, false}, {nats.ErrDisconnected, false}, {errors.New("maximum bytes exceeded"), true}} {
		t.Run(c.err.Error(), func(t *testing.T) {
			t.Parallel()
			p := open(t)
			p.batch(1)
			p.abandon()
			stream := &script{err: c.err}
			r := p.run(stream)
			localtest.Eventually(t, 30*time.Second, func() error {
				if stream.calls.Load() < 3 { // at least two of them have been booked
					p.abandon()
					return errors.New("not tried three times yet")
				}
				return nil
			})
			r.stop()
			var tries int
			if err := p.db.QueryRow(t.Context(), `SELECT tries FROM outbox`).Scan(&tries); err != nil || (tries > 0) != c.refused {
				t.Errorf("%d tries, refused is %v (%v)", tries, c.refused, err)
			}
		})
	}
}

// An event that has left the history cannot be published; its row must not stay
// for ever, nor hold up what can.
func TestARowWhoseEventIsGone(t *testing.T) {
	t.Parallel()
	p := open(t)
	p.batch(1)
	p.exec(`DELETE FROM event`)
	whole := p.batch(1)
	p.abandon()
	p.run(p.stream)
	p.drained()
	p.wantStored(whole)
}

// More than fits is not waited for: a sweep finds it.
func TestHandNeverBlocks(t *testing.T) {
	t.Parallel()
	p := open(t)
	r := outbox.NewRelay(outbox.Config{DB: p.db, Publisher: &script{}, Log: localtest.Logger(t)})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 1000 {
			r.Hand(outbox.Batch{ID: uuid.New(), Messages: []outbox.Message{{ID: "x"}}})
		}
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("blocked")
	}
}
