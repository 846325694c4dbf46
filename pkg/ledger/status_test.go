package ledger_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

func TestEveryGate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want  string
		until bool
		make  func(t *testing.T, b *book) delivery.ID
	}{
		{"ready", true, func(t *testing.T, b *book) delivery.ID {
			r := b.request("acme", "1")
			b.accept(t, r)
			b.join(t, time.Minute)
			return r.ID
		}},
		{"no_sender", false, func(t *testing.T, b *book) delivery.ID { r := b.request("acme", "1"); b.accept(t, r); return r.ID }},
		{"prepare", true, func(t *testing.T, b *book) delivery.ID {
			r := b.unprepared("acme", "1")
			b.accept(t, r)
			b.join(t, time.Minute)
			b.retry(t, r.ID)
			return r.ID
		}},
		{"lapsed", true, func(t *testing.T, b *book) delivery.ID {
			k := b.one(t)
			b.exec(t, "UPDATE worker SET lease_until = now() - interval '1 second'")
			return k.ID
		}},
		{"in_work", true, func(t *testing.T, b *book) delivery.ID { return b.one(t).ID }},
		{"held", false, func(t *testing.T, b *book) delivery.ID {
			k := b.one(t)
			b.settle(t, ledger.Moved, unknown(k, delivery.Held))
			return k.ID
		}},
		{"waiting", true, func(t *testing.T, b *book) delivery.ID {
			k := b.one(t)
			s := result(k, delivery.Retry, delivery.Refused)
			s.Decision.Delay = time.Hour
			b.settle(t, ledger.Moved, s)
			return k.ID
		}},
		{"blocked", false, func(t *testing.T, b *book) delivery.ID {
			first, second := b.ordered("acme", "k", "1"), b.ordered("acme", "k", "2")
			b.accept(t, first, second)
			return second.ID
		}},
		{"paused", true, func(t *testing.T, b *book) delivery.ID {
			r := b.request("acme", "1")
			b.accept(t, r)
			b.exec(t, "UPDATE lane SET paused_until = now() + interval '1 hour', shut_until = now() + interval '1 hour', paused_reason = 'maintenance'")
			return r.ID
		}},
		{"breaker", true, func(t *testing.T, b *book) delivery.ID {
			r := b.request("acme", "1")
			b.accept(t, r)
			b.exec(t, "UPDATE lane SET shut_until = now() + interval '1 hour', shut_reason = 'breaker'")
			return r.ID
		}},
		{"final", false, func(t *testing.T, b *book) delivery.ID {
			k := b.one(t)
			b.settle(t, ledger.Moved, sent(k))
			return k.ID
		}},
	} {
		t.Run(c.want, func(t *testing.T) {
			t.Parallel()
			b := open(t)
			s := b.status(t, c.make(t, b))
			if s.Gate.Name != c.want || (s.Gate.Until != nil) != c.until || s.Gate.Why == "" || s.Gate.Release == "" || s.InWork != (c.want == "in_work" || c.want == "lapsed") {
				t.Fatalf("%+v", s.Gate)
			}
		})
	}
}

// Until of a pause without an end is PostgreSQL's infinity.
func TestAPauseWithoutEnd(t *testing.T) {
	t.Parallel()
	b := open(t)
	r := b.request("acme", "1")
	b.accept(t, r)
	b.exec(t, "UPDATE lane SET paused_until = 'infinity'")
	if g := b.status(t, r.ID).Gate; g.Name != "paused" || g.Until != nil {
		t.Fatalf("%+v", g)
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	b := open(t)
	named := uuid.NewString() // a client that names its requests by UUIDs
	plain, byUUID := b.request("acme", "order-1"), b.request("acme", named)
	b.accept(t, plain, byUUID)
	for _, c := range []struct {
		tenant, name string
		want         delivery.ID
	}{{"acme", "order-1", plain.ID}, {"acme", named, byUUID.ID}, {"acme", plain.ID.String(), plain.ID}, {"", plain.ID.String(), plain.ID}} {
		if id, err := b.Find(t.Context(), c.tenant, c.name); err != nil || id != c.want {
			t.Errorf("%s/%s: %s %v", c.tenant, c.name, id, err)
		}
	}
	for _, c := range [][2]string{{"globex", "order-1"}, {"acme", "order-2"}, {"acme", "\x00\xff"}, {"", ""}} {
		if _, err := b.Find(t.Context(), c[0], c[1]); !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("%q: %v", c, err)
		}
	}
	if _, err := b.Status(t.Context(), delivery.NewID()); !errors.Is(err, ledger.ErrNotFound) {
		t.Error(err)
	}
}
