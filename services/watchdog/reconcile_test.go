package watchdog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// age makes every event of the book that old.
func (s *site) age(d time.Duration) {
	s.exec(`UPDATE event SET at = now() - make_interval(secs => $1)`, d.Seconds())
}

func (s *site) runReconciler(last *delivery.Reconciliation) *delivery.Reconciliation {
	s.t.Helper()
	var text json.RawMessage
	if last != nil {
		var err error
		if text, err = json.Marshal(last); err != nil {
			s.t.Fatal(err)
		}
	}
	sum, err := newReconciler(s.log, s.book, s.js, s.republisher()).run(s.t.Context(), text, always)
	if err != nil {
		s.t.Fatal(err)
	}
	return sum
}

func TestReconcilerPublishesWhatTheStreamLacks(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 30)
	s.publish()
	s.age(5 * time.Minute) // so young that the stream still knows the ids of what it has lost
	all := s.entries()
	s.lose(all[3], all[4], all[17], all[29])
	sum := s.runReconciler(nil)
	if sum.Booked != 30 || sum.Missing != 4 || sum.Repaired != 4 || sum.Unknown != 0 || sum.Repeats != 0 || !sum.Complete || len(sum.Gaps) != 1 || sum.Gaps[0].Missing != 4 {
		t.Fatalf("%+v", sum)
	}
	s.compare(1)
	again := s.runReconciler(sum)
	if again.Missing != 0 || again.Repaired != 0 || again.Complete || again.Booked != 30 {
		t.Fatalf("again: %+v", again)
	}
	s.compare(1)
}

func TestReconcilerLeavesAloneWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 5) // in the outbox, however old
	s.age(time.Hour)
	sum := s.runReconciler(nil)
	if sum.Missing != 0 || sum.Pending != 5 || len(s.entries()) != 0 {
		t.Fatalf("%+v", sum)
	}
	s.exec(`DELETE FROM outbox`)
	s.age(time.Minute) // not in the outbox, but too young to be called missing
	if sum := s.runReconciler(nil); sum.Booked != 0 || sum.Missing != 0 || len(s.entries()) != 0 {
		t.Fatalf("%+v", sum)
	}
	s.age(time.Hour)
	if sum := s.runReconciler(nil); sum.Missing != 5 || sum.Repaired != 5 {
		t.Fatalf("%+v", sum)
	}
	s.compare(1)
}

// Counts and checksums are fooled when one event is twice there and another not
// at all; and what nobody has booked is told, not touched.
func TestReconcilerIsNotFooledByRepeats(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 10)
	s.publish()
	s.age(5 * time.Minute)
	all := s.entries()
	s.lose(all[0])
	strange := delivery.EventID(delivery.NewID(), 1)
	for _, m := range []struct{ msgID, eventID, subject string }{
		{"again", all[5].id, all[5].subject},
		{"strange", strange, all[5].subject},
		{"garbage", "no event's id", all[5].subject},
		{"alert", "alert.outbox_age.1", streams.Event(streams.KindAlert, "raised", "", "")},
	} {
		msg := &nats.Msg{Subject: m.subject, Data: []byte(all[5].content), Header: nats.Header{}}
		msg.Header.Set(bus.HeaderMsgID, m.msgID)
		msg.Header.Set(bus.HeaderEventID, m.eventID)
		if err := s.bus.Publish(t.Context(), []*nats.Msg{msg}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	sum := s.runReconciler(nil)
	slices.Sort(sum.UnknownIDs)
	if sum.Missing != 1 || sum.Repaired != 1 || sum.Repeats != 1 || sum.Unknown != 2 || strings.Join(sum.UnknownIDs, " ") != strange+" no event's id" {
		t.Fatalf("%+v", sum)
	}
	if n := len(s.entries()); n != 14 {
		t.Fatalf("%d messages, want 9 + 4 + 1", n)
	}
}

func TestReconcilerRebuildsALostStream(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for range 4 {
		s.accept("acme", 25)
	}
	s.publish()
	s.age(36 * time.Hour)
	sum := s.runReconciler(nil)
	if sum.Missing != 0 {
		t.Fatalf("%+v", sum)
	}
	s.loseAll()
	s.accept("acme", 150) // the new stream is longer already than the old one was
	s.publish()
	again := s.runReconciler(sum) // what it lacks is far older than what is new since the last time
	if !again.Complete || again.Missing != 100 || again.Repaired != 100 {
		t.Fatalf("%+v", again)
	}
	s.compare(1)
	for _, e := range s.entries() {
		if e.msgID != e.id {
			t.Fatalf("%s went out as %s although it is out of doubt", e.id, e.msgID)
		}
	}
}

// What the stream may let go of by age is not put back.
func TestReconcilerKnowsTheStreamsAge(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 3)
	s.exec(`DELETE FROM outbox`)
	s.age(31 * 24 * time.Hour)
	if sum := s.runReconciler(nil); sum.Booked != 0 || sum.Missing != 0 || len(s.entries()) != 0 {
		t.Fatalf("%+v", sum)
	}
}

func TestReconcilerGoesOnWhenTooMuchIsMissing(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 50)
	s.publish()
	s.accept("acme", 150)
	s.exec(`DELETE FROM outbox`)
	s.exec(`UPDATE event SET at = now() - interval '1 hour' - interval '4 hours' * random()`)
	r := newReconciler(s.log, s.book, s.js, s.republisher())
	r.most = 10
	sum, err := r.run(t.Context(), nil, always)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Missing != 150 || sum.Repaired != 150 || sum.Booked != 200 || sum.Unknown != 0 {
		t.Fatalf("%+v", sum)
	}
	s.compare(1)
}

// The clocks of the two servers differ: the stream seems to tell events before they
// are booked.
func TestReconcilerBearsClocksThatDiffer(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{4 * time.Minute, -4 * time.Minute} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.accept("acme", lookUpPage+100)
			s.publish()
			s.age(-ahead)
			all := s.entries()
			s.lose(all[7])
			r := newReconciler(s.log, s.book, s.js, s.republisher())
			r.margin = -10 * time.Minute
			// It begins just before now, in small steps: the stream is read before the
			// events of the book that it tells.
			info, err := r.stream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			last, err := json.Marshal(delivery.Reconciliation{To: time.Now().Add(lateCommit - time.Second + min(ahead, 0)*2), StreamCreated: info.Created})
			if err != nil {
				t.Fatal(err)
			}
			sum, err := r.run(t.Context(), last, always)
			if err != nil || sum.Booked != lookUpPage+100 || sum.Missing != 1 || sum.Repeats != 0 || sum.Unknown != 0 {
				t.Fatalf("%+v %v", sum, err)
			}
			s.compare(1)
		})
	}
}

func TestReconcilerStopsWhenItsLeaseIsLost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 3)
	s.exec(`DELETE FROM outbox`)
	s.age(time.Hour)
	lost := errors.New("lost")
	if _, err := newReconciler(s.log, s.book, s.js, s.republisher()).run(t.Context(), nil, func() error { return lost }); !errors.Is(err, lost) {
		t.Fatalf("it went on: %v", err)
	}
}

func TestReconcileIsADutyOfOne(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.accept("acme", 3)
	s.exec(`DELETE FROM outbox`)
	s.age(time.Hour)
	duty, err := s.book.TakeDuty(t.Context(), reconcileDuty, "another", time.Minute, time.Hour)
	if err != nil || duty == nil {
		t.Fatal(duty, err)
	}
	if err := s.reconcile(t.Context()); err != nil || len(s.entries()) != 0 {
		t.Fatalf("it was done beside another: %v", err)
	}
	if err := duty.End(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := s.reconcile(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.compare(1)
	var last delivery.Reconciliation
	if err := bus.Call(t.Context(), s.nats, streams.Ops("watchdog", "reconciliation"), nil, &last); !errors.Is(err, bus.ErrNotRunning) {
		t.Fatalf("somebody answers: %v", err)
	}
	if done, err := s.book.LastDuty(t.Context(), reconcileDuty, &last); err != nil || !done || last.Repaired != 3 {
		t.Fatalf("%+v %v %v", last, done, err)
	}
	s.loseAll()
	if err := s.reconcile(t.Context()); err != nil || len(s.entries()) != 0 {
		t.Fatalf("it was done again within the hour: %v", err)
	}
}
