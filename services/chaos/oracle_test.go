package chaos

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/streams"
)

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// tape writes a history by hand, a second per step.
type tape struct {
	t *testing.T
	h *History
	n int
}

func newTape(t *testing.T) *tape {
	return &tape{t: t, h: &History{Rules: Rules{OnUnknown: "retry", Quiet: true, Grace: 10 * time.Second, Marker: "the-payload"}}}
}

func (p *tape) tick() time.Time {
	p.n++
	return epoch.Add(time.Duration(p.n) * time.Second)
}

// request publishes one and brings it into the book as pending.
func (p *tape) request(name, to string, want ...delivery.State) delivery.ID {
	hash := hex.EncodeToString([]byte(name))
	p.h.Published = append(p.h.Published, Publication{Tenant: "acme", RequestID: name, Hash: hash, Recipients: []string{to}, Want: want, Began: p.tick(), Acked: p.tick(), Tries: 1})
	var id delivery.ID
	id[0], id[15] = 1, byte(len(p.h.Book.Deliveries)+1)
	p.h.Book.Deliveries = append(p.h.Book.Deliveries, BookDelivery{ID: id, Tenant: "acme", RequestID: name, State: delivery.Pending})
	p.h.Book.Keys = append(p.h.Book.Keys, BookKey{Tenant: "acme", RequestID: name, Hash: hash, ID: id})
	p.h.Book.Recipients = append(p.h.Book.Recipients, BookRecipient{ID: id, Address: to, State: delivery.RecipientPending})
	p.move(id, delivery.Pending, "accepted")
	return id
}

func (p *tape) delivery(id delivery.ID) *BookDelivery {
	i := slices.IndexFunc(p.h.Book.Deliveries, func(d BookDelivery) bool { return d.ID == id })
	return &p.h.Book.Deliveries[i]
}

// move writes a version: event, stream, and where a person must know, the letter.
func (p *tape) move(id delivery.ID, state delivery.State, cause string) {
	d := p.delivery(id)
	d.State, d.Version = state, d.Version+1
	ev := delivery.Event{ID: id, Version: d.Version, State: state, Tenant: d.Tenant, Channel: delivery.Mail, RequestID: d.RequestID, At: p.tick(), Cause: cause}
	body, err := ev.Encode()
	if err != nil {
		p.t.Fatal(err)
	}
	subject := streams.Event(streams.KindDelivery, string(state), "mail", d.Tenant)
	p.h.Book.Events = append(p.h.Book.Events, BookEvent{ID: id, Version: d.Version, State: string(state), Subject: subject, Body: body, At: ev.At})
	p.h.Told = append(p.h.Told, Told{Sequence: uint64(len(p.h.Told) + 1), At: p.tick(), Subject: subject, ID: ev.Event, Body: body})
	if source := map[delivery.State]string{delivery.Dead: "send_exhausted", delivery.Failed: "send_failed", delivery.Held: "held"}[state]; source != "" {
		p.letter(BookLetter{EventID: ev.Event, Source: source, Tenant: d.Tenant})
	}
}

func (p *tape) letter(l BookLetter) {
	p.h.Book.Letters = append(p.h.Book.Letters, l)
	body, err := json.Marshal(delivery.Letter{EventID: l.EventID, Source: l.Source})
	if err != nil {
		p.t.Fatal(err)
	}
	p.h.Letters = append(p.h.Letters, Told{Sequence: uint64(len(p.h.Letters) + 1), ID: "dlq." + l.EventID, Body: body})
}

// attempt writes one under the next fence.
func (p *tape) attempt(id delivery.ID, verdict string) {
	d := p.delivery(id)
	d.Fence, d.Attempts = d.Fence+1, d.Attempts+1
	p.h.Book.Attempts = append(p.h.Book.Attempts, BookAttempt{ID: id, Fence: d.Fence, Number: d.Attempts, ClaimedAt: p.tick(), SettledAt: p.tick(), Verdict: verdict})
}

func (p *tape) arrive(id delivery.ID, to string) {
	p.h.Taken = append(p.h.Taken, smtpsink.Entry{Time: p.tick(), MessageID: id.String() + "@house.example", To: []string{to}, Answered: true})
}

// send is the ordinary life of a delivery from its queue to its end.
func (p *tape) send(id delivery.ID, to string) {
	p.arrive(id, to)
	p.attempt(id, "accepted")
	p.recipient(id, delivery.RecipientAccepted)
	p.move(id, delivery.Sent, "attempt")
}

func (p *tape) recipient(id delivery.ID, state delivery.RecipientState) {
	for i := range p.h.Book.Recipients {
		if p.h.Book.Recipients[i].ID == id {
			p.h.Book.Recipients[i].State = state
		}
	}
}

// story is a history with something of everything, and nothing wrong in it.
type story struct {
	*tape
	plain, unknown, late, dead, held delivery.ID
}

func tell(t *testing.T) *story {
	p := newTape(t)
	s := &story{tape: p}
	s.plain = p.request("plain", "a@example.org", delivery.Sent)
	p.send(s.plain, "a@example.org")

	sole := p.request("sole", "s@example.org", delivery.Sent)
	p.send(sole, "s@example.org")
	p.recipient(sole, delivery.RecipientPending) // left as it was: it was the only one

	s.unknown = p.request("unknown", "b@example.org", delivery.Sent)
	p.arrive(s.unknown, "b@example.org")
	p.attempt(s.unknown, "unknown")
	p.move(s.unknown, delivery.Retry, "lease lapsed")
	p.send(s.unknown, "b@example.org")

	s.late = p.request("late", "c@example.org", delivery.Sent)
	p.arrive(s.late, "c@example.org")
	p.attempt(s.late, "unknown")
	p.move(s.late, delivery.Retry, "lease lapsed")
	p.h.Book.Attempts = append(p.h.Book.Attempts, BookAttempt{ID: s.late, Fence: 1, Number: 1, SettledAt: p.tick(), Verdict: "late"})
	p.recipient(s.late, delivery.RecipientAccepted)
	p.move(s.late, delivery.Sent, "late result")

	s.dead = p.request("dead", "full@example.org", delivery.Dead)
	p.attempt(s.dead, "refused")
	p.move(s.dead, delivery.Retry, "attempt")
	p.attempt(s.dead, "refused")
	p.move(s.dead, delivery.Dead, "attempt")

	s.held = p.request("held", "d@example.org")
	p.attempt(s.held, "unknown")
	p.move(s.held, delivery.Held, "attempt")
	p.h.Book.Queue = append(p.h.Book.Queue, BookQueue{ID: s.held, State: "held", Fence: 1})

	for _, name := range []string{"poison", "rival"} { // one that cannot be read, one whose id was taken
		hash := hex.EncodeToString([]byte(name + " body"))
		p.h.Published = append(p.h.Published, Publication{Tenant: "acme", RequestID: map[string]string{"poison": "poison", "rival": "plain"}[name], Hash: hash, Poison: name == "poison", Began: p.tick(), Acked: p.tick(), Tries: 1})
		p.letter(BookLetter{EventID: "poison." + name, Source: "poison", Tenant: "acme", RawHash: hash})
	}
	p.h.Published = append(p.h.Published, Publication{Tenant: "acme", RequestID: "never answered", Hash: "00", Began: p.tick(), Tries: 9})
	p.h.Book.Now = p.tick()
	for i := range 90 {
		p.h.Samples = append(p.h.Samples, Sample{At: epoch.Add(time.Duration(i) * time.Second), Process: "sender-1 life 1", RSS: 40 << 20, Files: 20, Threads: 9})
	}
	return s
}

func TestNothingWrong(t *testing.T) {
	t.Parallel()
	for _, v := range Judge(tell(t).h) {
		t.Error(v)
	}
}

// Each history has one thing wrong, which must be found, under its invariant.
func TestEachInvariantIsFound(t *testing.T) {
	t.Parallel()
	drop := func(list *[]Told, id string) {
		*list = slices.DeleteFunc(*list, func(t Told) bool { return t.ID == id })
	}
	for _, c := range []struct {
		name, invariant, words string
		spoil                  func(*story)
	}{
		{"an acknowledged request is not there", "I1", "the book does not have it", func(s *story) {
			s.h.Published = append(s.h.Published, Publication{Tenant: "acme", RequestID: "lost", Hash: "77", Acked: s.tick(), Tries: 1})
		}},
		{"a request has two deliveries", "I1", "2 deliveries", func(s *story) {
			d := *s.delivery(s.plain)
			d.ID[15] = 99
			s.h.Book.Deliveries = append(s.h.Book.Deliveries, d)
		}},
		{"a delivery that nobody asked for", "I1", "nobody published it", func(s *story) {
			s.h.Published = slices.DeleteFunc(s.h.Published, func(p Publication) bool { return p.RequestID == "dead" })
		}},
		{"a key that leads nowhere", "I1", "which is not there", func(s *story) {
			s.h.Book.Keys = append(s.h.Book.Keys, BookKey{Tenant: "acme", RequestID: "never answered", Hash: "00", ID: delivery.ID{9}})
		}},
		{"a body that nobody sent", "I1", "a body under its id that nobody published", func(s *story) { s.h.Book.Keys[0].Hash = "ff" }},
		{"poison that vanished", "I1", "no letter holds it", func(s *story) {
			s.h.Book.Letters = slices.DeleteFunc(s.h.Book.Letters, func(l BookLetter) bool { return l.EventID == "poison.poison" })
			drop(&s.h.Letters, "dlq.poison.poison")
		}},
		{"a conflict that vanished", "I1", "no letter holds it", func(s *story) {
			s.h.Book.Letters = slices.DeleteFunc(s.h.Book.Letters, func(l BookLetter) bool { return l.EventID == "poison.rival" })
			drop(&s.h.Letters, "dlq.poison.rival")
		}},
		{"waiting outside of the queue", "I1", "nobody will ever touch it", func(s *story) { s.h.Book.Queue = nil }},
		{"final and in the queue", "I1", "in the queue", func(s *story) {
			s.h.Book.Queue = append(s.h.Book.Queue, BookQueue{ID: s.plain, State: "ready", DueAt: s.h.Book.Now, Fence: 9})
		}},
		{"the wrong end", "I1", "ended in", func(s *story) { s.h.Published[0].Want = []delivery.State{delivery.Failed} }},
		{"a mail that nobody sent", "I1", "a mail that was taken", func(s *story) { s.arrive(delivery.ID{7}, "a@example.org") }},
		{"a mail twice", "I2", "2 times", func(s *story) { s.arrive(s.plain, "a@example.org") }},
		{"a mail three times with one unknown attempt", "I2", "3 times", func(s *story) { s.arrive(s.unknown, "b@example.org") }},
		{"a mail to somebody else", "I2", "is no recipient", func(s *story) { s.arrive(s.plain, "z@example.org") }},
		{"sent and never arrived", "I2", "has never seen it", func(s *story) { s.h.Taken = s.h.Taken[1:] }},
		{"sent and still waiting", "I2", "still waits", func(s *story) {
			s.h.Book.Recipients = append(s.h.Book.Recipients, BookRecipient{ID: s.plain, Address: "e@example.org", State: delivery.RecipientPending})
		}},
		{"arrived, given up, and nobody knows", "I2", "nobody knows", func(s *story) { s.arrive(s.dead, "full@example.org") }},
		{"tried again under hold", "I2", "to hold", func(s *story) { s.h.Rules.OnUnknown = "hold" }},
		{"twice under a fault that explains none", "I2", "explains none", func(s *story) { s.h.Rules.NoDuplicates = true }},
		{"unknown under a fault that explains none", "I2", "explains none", func(s *story) { s.h.Rules.NoUnknown = true }},
		{"a Message-ID of another", "I2", "no delivery's", func(s *story) { s.h.Taken[0].MessageID = "other@example.org" }},
		{"a version is missing", "I3", "events", func(s *story) {
			s.h.Book.Events = slices.DeleteFunc(s.h.Book.Events, func(e BookEvent) bool { return e.ID == s.plain && e.Version == 2 })
		}},
		{"a version twice", "I3", "has version", func(s *story) {
			s.h.Book.Events = append(s.h.Book.Events, s.h.Book.Events[0])
		}},
		{"an illegal move", "I3", "no legal move", func(s *story) { s.move(s.plain, delivery.Retry, "attempt") }},
		{"settled without an event", "I3", "events tell of one", func(s *story) { s.attempt(s.dead, "refused") }},
		{"an event without an attempt", "I3", "events tell of one", func(s *story) {
			s.h.Book.Attempts = slices.DeleteFunc(s.h.Book.Attempts, func(a BookAttempt) bool { return a.ID == s.plain })
		}},
		{"state and last event differ", "I3", "its last event says", func(s *story) { s.delivery(s.dead).State = delivery.Failed }},
		{"the body says something else", "I3", "something else", func(s *story) {
			s.h.Book.Events[0].Body = bytes.Replace(s.h.Book.Events[0].Body, []byte(`"version":1`), []byte(`"version":5`), 1)
			s.h.Told[0].Body = s.h.Book.Events[0].Body
		}},
		{"an event was never published", "I4", "the stream lacks version 2", func(s *story) { drop(&s.h.Told, delivery.EventID(s.plain, 2)) }},
		{"an event is not the same", "I4", "not the same", func(s *story) { s.h.Told[0].Body = []byte("{}") }},
		{"an event that never happened", "I4", "the book does not have", func(s *story) {
			s.h.Told = append(s.h.Told, Told{Subject: "posthouse.event.delivery.sent.mail.acme", ID: delivery.EventID(s.plain, 3), Body: []byte("{}")})
		}},
		{"an event of no delivery", "I4", "does not have", func(s *story) {
			s.h.Told = append(s.h.Told, Told{Subject: "posthouse.event.delivery.sent.mail.acme", ID: delivery.EventID(delivery.ID{8}, 1)})
		}},
		{"two results under one fence", "I5", "under fence 1", func(s *story) {
			d := s.delivery(s.dead)
			d.Fence = 0
			s.attempt(s.dead, "unknown")
			s.move(s.dead, delivery.Retry, "attempt")
		}},
		{"a late result with nothing in time", "I5", "too late under fence 5", func(s *story) {
			s.h.Book.Attempts = append(s.h.Book.Attempts, BookAttempt{ID: s.plain, Fence: 5, Number: 1, SettledAt: s.tick(), Verdict: "late"})
		}},
		{"a fence went down", "I5", "went down", func(s *story) { s.h.Book.Queue[0].Fence = 0 }},
		{"an attempt ahead of its delivery", "I5", "the delivery only 0", func(s *story) { s.delivery(s.plain).Fence = 0 }},
		{"a lease that nobody takes back", "I6", "nobody has taken it back", func(s *story) {
			id := s.request("stuck", "s@example.org")
			s.h.Book.Queue = append(s.h.Book.Queue, BookQueue{ID: id, State: "leased", LeaseUntil: epoch, Fence: 1})
			s.h.Book.Now = epoch.Add(time.Hour)
		}},
		{"leased by nobody", "I6", "a worker that is gone", func(s *story) {
			id := s.request("stuck", "s@example.org")
			s.h.Book.Queue = append(s.h.Book.Queue, BookQueue{ID: id, State: "leased", Fence: 1})
		}},
		{"due and not taken", "I6", "on an open lane", func(s *story) {
			id := s.request("stuck", "s@example.org")
			s.h.Book.Queue = append(s.h.Book.Queue, BookQueue{ID: id, State: "ready", DueAt: epoch})
			s.h.Book.Now = epoch.Add(time.Hour)
		}},
		{"no rest", "I6", "did not come to rest", func(s *story) { s.h.Rules.Quiet = false }},
		{"an outbox that is not empty", "I6", "3 rows", func(s *story) { s.h.Book.Outbox = 3 }},
		{"a dead delivery without a letter", "I7", "0 letters in the archive", func(s *story) {
			s.h.Book.Letters = slices.DeleteFunc(s.h.Book.Letters, func(l BookLetter) bool { return l.Source == "send_exhausted" })
			drop(&s.h.Letters, "dlq."+delivery.EventID(s.dead, 3))
		}},
		{"a letter that nobody was told of", "I7", "the dead-letter stream has nothing of it", func(s *story) { drop(&s.h.Letters, "dlq."+delivery.EventID(s.dead, 3)) }},
		{"a letter told and not archived", "I7", "not in the archive", func(s *story) {
			s.h.Book.Letters = slices.DeleteFunc(s.h.Book.Letters, func(l BookLetter) bool { return l.EventID == "poison.rival" })
		}},
		{"a letter without a reason", "I7", "no event that explains it", func(s *story) {
			s.letter(BookLetter{EventID: delivery.EventID(s.plain, 2), Source: "send_failed"})
		}},
		{"a wait that was counted", "I8", "counts 5 attempts", func(s *story) { s.delivery(s.plain).Attempts = 5 }},
		{"attempts numbered wrongly", "I8", "is numbered 7", func(s *story) { s.h.Book.Attempts[0].Number = 7 }},
		{"a tenant that waits for another", "I9", "want at most", func(s *story) { s.h.Rules.Dwell = map[string]time.Duration{"acme": time.Millisecond} }},
		{"memory that grows", "I10", "bytes of memory", func(s *story) {
			for i := range s.h.Samples {
				s.h.Samples[i].RSS = int64(i) * 8 << 20
			}
		}},
		{"files that are never closed", "I10", "open files", func(s *story) {
			for i := range s.h.Samples {
				s.h.Samples[i].Files = 20 * i
			}
		}},
		{"a payload in a log", "I11", "a log line", func(s *story) { s.h.Leaks = []string{"sender-1: the-payload"} }},
		{"a payload in an event", "I11", "on the stream holds a payload", func(s *story) {
			s.h.Told[0].Body = append(bytes.Clone(s.h.Told[0].Body), "the-payload"...)
		}},
		{"a payload in an answer", "I11", "the answer of an attempt", func(s *story) { s.h.Book.Attempts[0].Answer = "550 the-payload is not wanted" }},
		{"a payload in a letter", "I11", "dead letter", func(s *story) { s.h.Letters[0].Subject = "posthouse.dlq.the-payload" }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := tell(t)
			c.spoil(s)
			found := Judge(s.h)
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Invariant == c.invariant && strings.Contains(v.Text, c.words) }) {
				t.Errorf("want %s with %q, found %v", c.invariant, c.words, found)
			}
			if !slices.IsSortedFunc(found, func(a, b Violation) int { return rank(a.Invariant) - rank(b.Invariant) }) {
				t.Errorf("the lowest invariant is not first: %v", found)
			}
		})
	}
}

// Any request that is taken out of the book, any mail that is doubled and any
// message that is taken off a stream is found.
func TestAnyLossIsFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		s := tell(t)
		switch rapid.SampledFrom([]string{"delivery", "event", "told", "letter", "attempt", "mail"}).Draw(r, "what") {
		case "delivery":
			i := rapid.IntRange(0, len(s.h.Book.Deliveries)-1).Draw(r, "i")
			s.h.Book.Deliveries = slices.Delete(s.h.Book.Deliveries, i, i+1)
		case "event":
			i := rapid.IntRange(0, len(s.h.Book.Events)-1).Draw(r, "i")
			s.h.Book.Events = slices.Delete(s.h.Book.Events, i, i+1)
		case "told":
			i := rapid.IntRange(0, len(s.h.Told)-1).Draw(r, "i")
			s.h.Told = slices.Delete(s.h.Told, i, i+1)
		case "letter":
			i := rapid.IntRange(0, len(s.h.Letters)-1).Draw(r, "i")
			s.h.Letters = slices.Delete(s.h.Letters, i, i+1)
		case "attempt":
			i := rapid.IntRange(0, len(s.h.Book.Attempts)-1).Draw(r, "i")
			if s.h.Book.Attempts[i].Verdict == "late" {
				return // evidence: its absence shows only in what it explains
			}
			s.h.Book.Attempts = slices.Delete(s.h.Book.Attempts, i, i+1)
		case "mail":
			i := rapid.IntRange(0, len(s.h.Taken)-1).Draw(r, "i")
			if e := s.h.Taken[i]; !strings.HasPrefix(e.MessageID, s.late.String()) { // one more there is explained by its unknown attempt
				s.h.Taken = append(s.h.Taken, e)
			} else {
				return
			}
		}
		if len(Judge(s.h)) == 0 {
			r.Fatal("nothing was found")
		}
	})
}

// A history that is kept is judged alike, and its story has what everybody saw.
func TestHistoryIsKept(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.arrive(s.plain, "a@example.org")
	path := filepath.Join(t.TempDir(), "history.json")
	if err := s.h.Save(path); err != nil {
		t.Fatal(err)
	}
	again, err := LoadHistory(path)
	if err != nil {
		t.Fatal(err)
	}
	found := Judge(again)
	if len(found) != 1 || found[0] != Judge(s.h)[0] {
		t.Fatalf("found %v, want %v", found, Judge(s.h))
	}
	story := Tale(again, found[0])
	for _, want := range []string{"producer   begins", "is acknowledged", "version 1: pending (accepted)", "attempt 1 under fence 1: accepted", "taken for a@example.org", "stream     "} {
		if !strings.Contains(story, want) {
			t.Errorf("the story has no %q:\n%s", want, story)
		}
	}
}
