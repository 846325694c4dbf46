package chaos

import (
	"bytes"
	"slices"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// telling: I3. Versions are contiguous from 1, each move is a legal one, the last
// event is what the delivery is, and each attempt has moved it exactly once.
func (j *judge) telling(f *file) {
	if len(f.events) != f.Version {
		j.say("I3", f, "it is at version %d and has %d events", f.Version, len(f.events))
	}
	var before delivery.State
	moves := 0
	for i, e := range f.events {
		ev, err := delivery.DecodeEvent(e.Body)
		switch {
		case e.Version != i+1:
			j.say("I3", f, "its event number %d has version %d", i+1, e.Version)
			return
		case err != nil || ev.ID != f.ID || ev.Version != e.Version || string(ev.State) != e.State || ev.Tenant != f.Tenant || ev.RequestID != f.RequestID:
			j.say("I3", f, "the body of version %d says something else than its row", e.Version)
			return
		case e.Subject != streams.Event(streams.KindDelivery, e.State, string(ev.Channel), f.Tenant):
			j.say("I3", f, "version %d has the subject %s", e.Version, e.Subject)
		case !delivery.Legal(before, ev.State):
			j.say("I3", f, "version %d goes from %q to %q, which is no legal move", e.Version, before, ev.State)
		}
		if ev.Cause == "attempt" || ev.Cause == "lease lapsed" {
			moves++
		}
		before = ev.State
	}
	if len(f.events) > 0 && before != f.State {
		j.say("I3", f, "it is %s and its last event says %s", f.State, before)
	}
	if made := len(f.made()); made != moves {
		j.say("I3", f, "%d attempts are in the book and %d events tell of one", made, moves)
	}
}

// made are the attempts that moved their delivery: not those that came too late.
func (f *file) made() []BookAttempt {
	return slices.DeleteFunc(slices.Clone(f.attempts), func(a BookAttempt) bool { return a.Verdict == "late" })
}

// streaming: I4. The stream holds what the book holds, byte for byte. A message
// that it holds twice is a figure, not a violation: consumers go by the version.
func (j *judge) streaming(f *file) {
	told := map[string]Told{}
	for _, t := range f.told {
		if first, again := told[t.ID]; again && !bytes.Equal(first.Body, t.Body) {
			j.say("I4", f, "event %s is on the stream twice, with different bodies", t.ID)
		}
		told[t.ID] = t
	}
	for _, e := range f.events {
		id := delivery.EventID(f.ID, e.Version)
		t, ok := told[id]
		switch {
		case !ok:
			j.say("I4", f, "the stream lacks version %d (%s)", e.Version, e.State)
		case !bytes.Equal(t.Body, e.Body) || t.Subject != e.Subject:
			j.say("I4", f, "version %d is not the same on the stream", e.Version)
		}
		delete(told, id)
	}
	for id := range told {
		j.say("I4", f, "the stream has event %s, which the book does not have", id)
	}
}

// fencing: I5. Attempts follow each other by rising fences, one each; a late
// result stands beside what the sweep wrote and never instead of it.
func (j *judge) fencing(f *file) {
	made := f.made()
	for i, a := range made {
		if i > 0 && a.Fence <= made[i-1].Fence {
			j.say("I5", f, "two attempts moved it under fence %d: %s and %s", a.Fence, made[i-1].Verdict, a.Verdict)
		}
		if i > 0 && a.SettledAt.Before(made[i-1].SettledAt) {
			j.say("I5", f, "the attempt under fence %d was settled before the one under fence %d", a.Fence, made[i-1].Fence)
		}
		if a.Fence > f.Fence {
			j.say("I5", f, "an attempt has fence %d, the delivery only %d", a.Fence, f.Fence)
		}
	}
	for _, a := range f.attempts {
		if a.Verdict == "late" && !slices.ContainsFunc(made, func(m BookAttempt) bool { return m.Fence == a.Fence }) {
			j.say("I5", f, "a result came too late under fence %d, and nothing was written in time", a.Fence)
		}
	}
	if f.queue != nil && f.queue.Fence < f.Fence {
		j.say("I5", f, "the queue has fence %d, the delivery %d: a fence went down", f.queue.Fence, f.Fence)
	}
}

// counting: I8. Only attempts are counted as attempts.
func (j *judge) counting(f *file) {
	made := f.made()
	if len(made) != f.Attempts {
		j.say("I8", f, "it counts %d attempts and has %d", f.Attempts, len(made))
	}
	for i, a := range made {
		if a.Number != i+1 {
			j.say("I8", f, "its attempt number %d is numbered %d", i+1, a.Number)
			return
		}
	}
}
