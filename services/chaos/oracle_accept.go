package chaos

import (
	"fmt"
	"slices"
	"strings"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// acceptance: I1. What the stream has acknowledged is in the book, once; what was
// never acknowledged may be; what was never published is not.
func (j *judge) acceptance() {
	missing := func(p Publication, format string, args ...any) {
		j.found = append(j.found, Violation{Invariant: "I1", Tenant: p.Tenant, RequestID: p.RequestID, Text: fmt.Sprintf(format, args...)})
	}
	for k, list := range j.reqs {
		row, known := j.keys[k]
		acked := slices.ContainsFunc(list, func(p Publication) bool { return !p.Acked.IsZero() })
		switch {
		case !known && acked:
			missing(list[0], "acknowledged at %s, and the book does not have it", clock(list[0].Acked))
		case known && j.files[row.ID] == nil:
			missing(list[0], "its key names delivery %s, which is not there", row.ID)
		case known && !slices.ContainsFunc(list, func(p Publication) bool { return p.Hash == row.Hash }):
			missing(list[0], "the book has a body under its id that nobody published")
		}
	}
	copies := map[key]int{}
	for _, id := range j.order {
		f := j.files[id]
		k := key{f.Tenant, f.RequestID}
		if copies[k]++; copies[k] > 1 {
			j.say("I1", f, "the request has %d deliveries", copies[k])
		}
		if len(j.reqs[k]) == 0 {
			j.say("I1", f, "nobody published it")
		}
		if row, ok := j.keys[k]; !ok || row.ID != f.ID {
			j.say("I1", f, "no key leads to it")
		}
	}
}

// conflicts: I1 and the rule on bad requests. Of two bodies under one id the first
// is a delivery and the other a letter; what cannot be read is a letter.
func (j *judge) conflicts() {
	raw := map[string]int{}
	for _, l := range j.Book.Letters {
		if l.Source == "poison" {
			raw[l.RawHash]++
		}
	}
	for _, p := range j.Published {
		row, known := j.keys[key{p.Tenant, p.RequestID}]
		bad := p.Poison || known && row.Hash != p.Hash
		if bad && !p.Acked.IsZero() && raw[p.Hash] == 0 {
			j.found = append(j.found, Violation{Invariant: "I1", Tenant: p.Tenant, RequestID: p.RequestID, Text: "a bad request was acknowledged, and no letter holds it"})
		}
	}
}

// standing: I1 and I6. What is not final is in the queue and waits for a reason
// that ends by itself or is a person; what is final is not in it.
func (j *judge) standing(f *file) {
	q, now, grace := f.queue, j.Book.Now, j.Rules.Grace
	switch {
	case f.State.Final() && q != nil:
		j.say("I1", f, "it is %s and in the queue (%s)", f.State, q.State)
	case f.State.Final():
	case q == nil:
		j.say("I1", f, "it is %s and not in the queue: nobody will ever touch it", f.State)
	case f.State == delivery.Held && q.State != "held":
		j.say("I1", f, "it is held, but %s in the queue", q.State)
	case q.State == "leased" && q.LeaseUntil.IsZero():
		j.say("I6", f, "leased by a worker that is gone")
	case q.State == "leased" && now.Sub(q.LeaseUntil) > grace:
		j.say("I6", f, "its lease lapsed %s ago and nobody has taken it back", now.Sub(q.LeaseUntil))
	case (q.State == "ready" || q.State == "waiting") && !q.LaneShut && now.Sub(q.DueAt) > grace:
		j.say("I6", f, "due for %s on an open lane (%s)", now.Sub(q.DueAt), q.State)
	}
	for _, p := range f.published {
		if f.State.Final() && len(p.Want) > 0 && !slices.Contains(p.Want, f.State) {
			j.say("I1", f, "it ended in %s, want %v", f.State, p.Want)
			break
		}
	}
}

// sending: I2. No recipient has more mails than one and the attempts of unknown
// outcome; what is sent has arrived; what is given up has not, unless the book
// knows that it does not know; under the policy hold nothing follows by itself.
func (j *judge) sending(f *file) {
	unknown := f.unknown()
	twice := false
	for to, n := range f.arrivals() {
		if n > 1+len(unknown) {
			j.say("I2", f, "%s has it %d times, with %d attempts of unknown outcome", to, n, len(unknown))
		}
		if n > 0 && !slices.ContainsFunc(f.recipients, func(r BookRecipient) bool { return strings.EqualFold(r.Address, to) }) {
			j.say("I2", f, "%s has it and is no recipient", to)
		}
		twice = twice || n > 1
	}
	if twice && j.Rules.NoDuplicates {
		j.say("I2", f, "it arrived twice, and this fault explains none")
	}
	if len(unknown) > 0 && j.Rules.NoUnknown {
		j.say("I2", f, "an attempt has an unknown outcome, and this fault explains none")
	}
	if f.State != delivery.Sent && len(f.taken) > 0 && len(unknown) == 0 && !slices.ContainsFunc(f.attempts, func(a BookAttempt) bool { return a.Verdict == "late" }) {
		for _, r := range f.recipients {
			if f.arrivals()[strings.ToLower(r.Address)] > 0 && r.State != delivery.RecipientAccepted && f.State.Final() {
				j.say("I2", f, "%s has it, it is %s, and nobody knows", r.Address, f.State)
			}
		}
	}
	if f.State == delivery.Sent {
		accepted, sole := 0, f.sole()
		for _, r := range f.recipients {
			switch {
			case r.State == delivery.RecipientPending && !sole:
				j.say("I2", f, "it is sent and %s still waits", r.Address)
			case r.State != delivery.RecipientRefused:
				accepted++
				if f.arrivals()[strings.ToLower(r.Address)] == 0 {
					j.say("I2", f, "the book says that %s has it, and the mail server has never seen it", r.Address)
				}
			}
		}
		if accepted == 0 {
			j.say("I2", f, "it is sent and no recipient has accepted it")
		}
	}
	if j.Rules.OnUnknown == "hold" {
		for fence := range unknown {
			if slices.ContainsFunc(f.attempts, func(a BookAttempt) bool { return a.Fence > fence }) && !f.caused("operator") {
				j.say("I2", f, "an attempt followed the unknown one under fence %d, though the policy is to hold", fence)
			}
		}
	}
}

// sole tells whether one recipient waited alone when the delivery was sent: its row
// is left as it was and means accepted.
func (f *file) sole() bool {
	waiting, accepted := 0, 0
	for _, r := range f.recipients {
		switch r.State {
		case delivery.RecipientPending:
			waiting++
		case delivery.RecipientAccepted:
			accepted++
		}
	}
	return waiting == 1 && accepted == 0
}

func (f *file) caused(cause string) bool {
	return slices.ContainsFunc(f.events, func(e BookEvent) bool {
		ev, err := delivery.DecodeEvent(e.Body)
		return err == nil && ev.Cause == cause
	})
}
