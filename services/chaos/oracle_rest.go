package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
)

// writing: I7. What ended so that a person must know is archived once and told.
func (j *judge) writing(f *file) {
	for _, e := range f.events {
		switch delivery.State(e.State) {
		case delivery.Dead, delivery.Failed, delivery.Expired, delivery.Held:
		default:
			continue
		}
		id := delivery.EventID(f.ID, e.Version)
		if n := j.letter[id]; n != 1 {
			j.say("I7", f, "version %d is %s and has %d letters in the archive", e.Version, e.State, n)
		}
		if j.posted[id] == 0 {
			j.say("I7", f, "version %d is %s and the dead-letter stream has nothing of it", e.Version, e.State)
		}
	}
}

// letters: I7. Every letter is told, and has a reason to exist.
func (j *judge) letters() {
	sources := map[string]string{"dead": "send_exhausted", "failed": "send_failed", "expired": "expired", "held": "held"}
	published := map[string]bool{}
	for _, p := range j.Published {
		published[p.Hash] = true
	}
	seen := map[string]bool{}
	for _, l := range j.Book.Letters {
		seen[l.EventID] = true
		if j.posted[l.EventID] == 0 {
			j.say("I7", nil, "letter %s is in the archive and not on the dead-letter stream", l.EventID)
		}
		if l.Source == "poison" {
			if !published[l.RawHash] {
				j.say("I7", nil, "letter %s holds bytes that nobody published", l.EventID)
			}
			continue
		}
		id, version, err := delivery.ParseEventID(l.EventID)
		f := j.files[id]
		if err != nil || f == nil || version > len(f.events) || sources[f.events[version-1].State] != l.Source {
			j.say("I7", f, "letter %s (%s) has no event that explains it", l.EventID, l.Source)
		}
	}
	for id := range j.posted {
		if !seen[id] {
			j.say("I7", nil, "the dead-letter stream has %s, which is not in the archive", id)
		}
	}
}

// rest: I6. When all is mended, all comes to rest.
func (j *judge) rest() {
	if !j.Rules.Quiet {
		for _, id := range j.order {
			if f := j.files[id]; f.queue != nil && f.queue.State != "held" {
				j.say("I6", f, "it is still in the queue (%s under fence %d)", f.queue.State, f.queue.Fence)
			}
		}
		j.say("I6", nil, "it did not come to rest: %s", j.Rules.Unrest)
	}
	if j.Book.Outbox > 0 {
		j.say("I6", nil, "%d rows are left in the outbox", j.Book.Outbox)
	}
}

// fairness: I9. Of each tenant named in the rules, 95 of 100 mails were taken in time.
func (j *judge) fairness() {
	for _, tenant := range slices.Sorted(maps.Keys(j.Rules.Dwell)) {
		if p95, bound := j.dwell(tenant, 0.95), j.Rules.Dwell[tenant]; p95 > bound {
			j.say("I9", nil, "tenant %s: 95 of 100 mails took up to %s, want at most %s", tenant, p95, bound)
		}
	}
}

// dwell is how long a share of a tenant's mails took at most (of everybody's: ""),
// from the acknowledgement to the mail server; 0 when there are none.
func (j *judge) dwell(tenant string, share float64) time.Duration {
	var list []time.Duration
	for _, f := range j.files {
		if (tenant == "" || f.Tenant == tenant) && len(f.taken) > 0 && len(f.published) > 0 && !f.published[0].Acked.IsZero() {
			first := slices.MinFunc(f.taken, func(a, b smtpsink.Entry) int { return a.Time.Compare(b.Time) })
			list = append(list, max(0, first.Time.Sub(f.published[0].Acked)))
		}
	}
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[min(len(list)-1, int(share*float64(len(list))))]
}

// growth: I10, as far as it shows in a run of minutes: what a process holds in the
// last third of its life is not far above what it held in the middle one.
func (j *judge) growth() {
	const enough = 30 // samples
	lives := map[string][]Sample{}
	for _, s := range j.Samples {
		lives[s.Process] = append(lives[s.Process], s)
	}
	for _, name := range slices.Sorted(maps.Keys(lives)) {
		life := lives[name]
		if len(life) < enough {
			continue
		}
		middle, last := life[len(life)/3:2*len(life)/3], life[2*len(life)/3:]
		for _, m := range []struct {
			what   string
			of     func(Sample) int64
			factor float64
			slack  int64
		}{
			{"bytes of memory", func(s Sample) int64 { return s.RSS }, 1.25, 64 << 20},
			{"open files", func(s Sample) int64 { return int64(s.Files) }, 1.25, 40},
			{"threads", func(s Sample) int64 { return int64(s.Threads) }, 1.25, 20},
		} {
			before, after := peak(middle, m.of), peak(last, m.of)
			if float64(after) > float64(before)*m.factor+float64(m.slack) {
				j.say("I10", nil, "%s grew from %d to %d %s", name, before, after, m.what)
			}
		}
	}
}

func peak(list []Sample, of func(Sample) int64) (most int64) {
	for _, s := range list {
		most = max(most, of(s))
	}
	return most
}

// secrecy: I11. No payload outside of the payload.
func (j *judge) secrecy() {
	for _, line := range j.Leaks {
		j.say("I11", nil, "a log line holds a payload or a secret: %.200s", line)
	}
	if j.Rules.Marker == "" {
		return
	}
	look := func(where, text string) {
		if strings.Contains(text, j.Rules.Marker) {
			j.say("I11", nil, "%s holds a payload", where)
		}
	}
	for _, t := range j.Told {
		look(fmt.Sprintf("event %s on the stream", t.ID), t.Subject+string(t.Body))
	}
	for _, t := range j.Letters {
		look(fmt.Sprintf("dead letter %s on the stream", t.ID), t.Subject+string(t.Body))
	}
	for _, a := range j.Book.Attempts {
		look(fmt.Sprintf("the answer of an attempt of %s", a.ID), a.Answer)
	}
}
