package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Tale is everything that the witnesses say of what a violation is about, a line
// each, in the order of time.
func Tale(h *History, v Violation) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	tell := func(at time.Time, format string, args ...any) {
		lines = append(lines, line{at, fmt.Sprintf(format, args...)})
	}
	ours := func(id delivery.ID) bool { return v.ID != delivery.ID{} && id == v.ID }
	for _, p := range h.Published {
		if v.RequestID == "" || p.Tenant != v.Tenant || p.RequestID != v.RequestID {
			continue
		}
		tell(p.Began, "producer   begins to publish %.12s… to %s", p.Hash, strings.Join(p.Recipients, " "))
		if !p.Acked.IsZero() {
			tell(p.Acked, "producer   is acknowledged after %d tries", p.Tries)
		}
	}
	for _, e := range h.Book.Events {
		if ours(e.ID) {
			cause := ""
			if ev, err := delivery.DecodeEvent(e.Body); err == nil {
				cause = ev.Cause
			}
			tell(e.At, "database   version %d: %s (%s)", e.Version, e.State, cause)
		}
	}
	for _, a := range h.Book.Attempts {
		if ours(a.ID) {
			if !a.ClaimedAt.IsZero() {
				tell(a.ClaimedAt, "database   claimed under fence %d", a.Fence)
			}
			tell(a.SettledAt, "database   attempt %d under fence %d: %s %s", a.Number, a.Fence, a.Verdict, a.Answer)
		}
	}
	for _, q := range h.Book.Queue {
		if ours(q.ID) {
			tell(h.Book.Now, "database   in the queue: %s, due %s, lease until %s, fence %d", q.State, clock(q.DueAt), clock(q.LeaseUntil), q.Fence)
		}
	}
	for _, e := range h.Taken {
		if name, _, _ := strings.Cut(e.MessageID, "@"); v.ID != (delivery.ID{}) && name == v.ID.String() {
			tell(e.Time, "mail       taken for %s on connection %d, answered %v", strings.Join(e.To, " "), e.Connection, e.Answered)
		}
	}
	for _, t := range slices.Concat(h.Told, h.Letters) {
		if v.ID != (delivery.ID{}) && strings.Contains(t.ID, v.ID.String()+".") {
			tell(t.At, "stream     %d: %s %s", t.Sequence, t.Subject, t.ID)
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "  %s  %s\n", clock(l.at), l.text)
	}
	return out.String()
}

func clock(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("15:04:05.000")
}
