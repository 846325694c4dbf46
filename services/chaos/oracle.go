package chaos

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
)

// Violation is one thing that must never be.
type Violation struct {
	Invariant string      `json:"invariant"` // "I1" to "I11"
	ID        delivery.ID `json:"id,omitzero"`
	Tenant    string      `json:"tenant,omitempty"`
	RequestID string      `json:"request_id,omitempty"`
	Text      string      `json:"text"`
}

func (v Violation) String() string {
	switch {
	case v.ID != delivery.ID{}:
		return fmt.Sprintf("%s: delivery %s (%s/%s): %s", v.Invariant, v.ID, v.Tenant, v.RequestID, v.Text)
	case v.RequestID != "":
		return fmt.Sprintf("%s: request %s/%s: %s", v.Invariant, v.Tenant, v.RequestID, v.Text)
	}
	return v.Invariant + ": " + v.Text
}

// key is how a client names a request.
type key struct{ tenant, id string }

// file is all that the witnesses say of one delivery.
type file struct {
	BookDelivery
	recipients []BookRecipient
	attempts   []BookAttempt
	events     []BookEvent
	queue      *BookQueue
	told       []Told
	taken      []smtpsink.Entry
	published  []Publication
}

// Judge holds a history against the invariants and returns every violation, the
// lowest invariant first. It reads nothing but the history.
func Judge(h *History) []Violation {
	j := newJudge(h)
	j.acceptance() // I1
	j.conflicts()  // I1
	j.strays()     // I1, I4
	for _, id := range j.order {
		f := j.files[id]
		j.standing(f)  // I1, I6
		j.sending(f)   // I2
		j.telling(f)   // I3
		j.streaming(f) // I4
		j.fencing(f)   // I5
		j.counting(f)  // I8
		j.writing(f)   // I7
	}
	j.letters()  // I7
	j.rest()     // I6
	j.fairness() // I9
	j.growth()   // I10
	j.secrecy()  // I11
	slices.SortStableFunc(j.found, func(a, b Violation) int { return cmp.Compare(rank(a.Invariant), rank(b.Invariant)) })
	return j.found
}

func rank(invariant string) (n int) {
	_, _ = fmt.Sscanf(invariant, "I%d", &n)
	return n
}

type judge struct {
	*History
	files  map[delivery.ID]*file
	order  []delivery.ID // by id, which is by time of acceptance
	keys   map[key]BookKey
	reqs   map[key][]Publication
	stray  []Violation
	found  []Violation
	letter map[string]int // archive, by event id
	posted map[string]int // dead-letter stream, by event id
}

func newJudge(h *History) *judge {
	j := &judge{History: h, files: map[delivery.ID]*file{}, keys: map[key]BookKey{}, reqs: map[key][]Publication{}, letter: map[string]int{}, posted: map[string]int{}}
	for _, d := range h.Book.Deliveries {
		j.files[d.ID] = &file{BookDelivery: d}
		j.order = append(j.order, d.ID)
	}
	slices.SortFunc(j.order, func(a, b delivery.ID) int { return bytes.Compare(a[:], b[:]) })
	for _, k := range h.Book.Keys {
		j.keys[key{k.Tenant, k.RequestID}] = k
	}
	for _, r := range h.Book.Recipients {
		j.of("I3", r.ID, "a recipient row", func(f *file) { f.recipients = append(f.recipients, r) })
	}
	for _, a := range h.Book.Attempts {
		j.of("I3", a.ID, "an attempt row", func(f *file) { f.attempts = append(f.attempts, a) })
	}
	for _, e := range h.Book.Events {
		j.of("I3", e.ID, "an event row", func(f *file) { f.events = append(f.events, e) })
	}
	for _, q := range h.Book.Queue {
		j.of("I1", q.ID, "a queue row", func(f *file) { f.queue = &q })
	}
	for _, t := range h.Told {
		id, _, err := delivery.ParseEventID(t.ID)
		if err != nil {
			if !strings.HasPrefix(t.Subject, "posthouse.event.delivery.") {
				continue // an alert: no part of the book
			}
			j.stray = append(j.stray, Violation{Invariant: "I4", Text: fmt.Sprintf("event %q on the stream (sequence %d) names no delivery", t.ID, t.Sequence)})
			continue
		}
		j.of("I4", id, fmt.Sprintf("event %s of the stream", t.ID), func(f *file) { f.told = append(f.told, t) })
	}
	for _, e := range h.Taken {
		name, _, _ := strings.Cut(e.MessageID, "@")
		id, err := delivery.ParseID(name)
		if err != nil {
			j.stray = append(j.stray, Violation{Invariant: "I2", Text: fmt.Sprintf("the mail server has a mail with Message-ID %q, which is no delivery's", e.MessageID)})
			continue
		}
		j.of("I1", id, "a mail that was taken", func(f *file) { f.taken = append(f.taken, e) })
	}
	for _, p := range h.Published {
		k := key{p.Tenant, p.RequestID}
		if !p.Poison {
			j.reqs[k] = append(j.reqs[k], p)
		}
		if row, ok := j.keys[k]; ok && row.Hash == p.Hash && j.files[row.ID] != nil {
			j.files[row.ID].published = append(j.files[row.ID].published, p)
		}
	}
	for _, l := range h.Book.Letters {
		j.letter[l.EventID]++
	}
	for _, t := range h.Letters {
		var letter delivery.Letter
		if json.Unmarshal(t.Body, &letter) != nil || letter.EventID == "" {
			j.stray = append(j.stray, Violation{Invariant: "I7", Text: fmt.Sprintf("message %q of the dead-letter stream (sequence %d) is no letter", t.ID, t.Sequence)})
			continue
		}
		j.posted[letter.EventID]++
	}
	for _, f := range j.files {
		slices.SortFunc(f.attempts, func(a, b BookAttempt) int {
			return cmp.Or(cmp.Compare(a.Fence, b.Fence), a.SettledAt.Compare(b.SettledAt))
		})
		slices.SortFunc(f.events, func(a, b BookEvent) int { return cmp.Compare(a.Version, b.Version) })
	}
	return j
}

func (j *judge) of(invariant string, id delivery.ID, what string, do func(*file)) {
	if f := j.files[id]; f != nil {
		do(f)
		return
	}
	j.stray = append(j.stray, Violation{Invariant: invariant, ID: id, Text: what + " belongs to a delivery that the book does not have"})
}

// say notes a violation by a delivery; by nil, one by nobody in particular.
func (j *judge) say(invariant string, f *file, format string, args ...any) {
	v := Violation{Invariant: invariant, Text: fmt.Sprintf(format, args...)}
	if f != nil {
		v.ID, v.Tenant, v.RequestID = f.ID, f.Tenant, f.RequestID
	}
	j.found = append(j.found, v)
}

func (j *judge) strays() { j.found = append(j.found, j.stray...) }

// unknown lists the fences of attempts whose outcome nobody knew.
func (f *file) unknown() map[int]bool {
	fences := map[int]bool{}
	for _, a := range f.attempts {
		if a.Verdict == "unknown" {
			fences[a.Fence] = true
		}
	}
	return fences
}

// arrivals counts the mails that each recipient has.
func (f *file) arrivals() map[string]int {
	n := map[string]int{}
	for _, e := range f.taken {
		for _, to := range e.To {
			n[strings.ToLower(to)]++
		}
	}
	return n
}
