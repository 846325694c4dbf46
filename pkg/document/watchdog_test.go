package document_test

import (
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/document"
)

// Each clause of the selection, to the letter.
func TestWhomTheWatchdogAnswers(t *testing.T) {
	t.Parallel()
	waiting := func(f *document.Facts) { f.MLS.Status = document.MLSWaiting }
	due := noon.Add(-2 * time.Second).Add(5 * time.Minute)
	for name, c := range map[string]struct {
		facts  document.Facts
		policy *document.Policy
		want   bool
	}{
		"forwarded, no code":                   {the(document.Forwarded, waiting), with(api), true},
		"forwarded unverified":                 {the(document.Forwarded, waiting, verdict("unverified")), with(api), true},
		"forwarded, no code, trigger auto now": {the(document.Forwarded, waiting), with(), true},
		"not forwarded yet":                    {the(document.Retry, waiting), with(api), false},
		"dead":                                 {the(document.Dead, waiting), with(api), false},
		"has a code":                           {the(document.Forwarded, code("AP")), with(api), false},
		"an MLS":                               {the(document.Forwarded, kind(document.KindMLS)), with(api), false},
		"an MLR":                               {the(document.Forwarded, kind(document.KindMLR)), with(api), false},
		"rejected":                             {the(document.Forwarded, waiting, verdict("rejected")), with(api), false},
		"failures only":                        {the(document.Forwarded, failureOnly), with(api), false},
		"sending is off":                       {the(document.Forwarded, waiting), with(api, mlsOff), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at, applies := c.facts.MLSDeadline(c.policy)
			if applies != c.want || applies && !at.Equal(due) {
				t.Errorf("due %s, %v", at, applies)
			}
			if _, ok := c.facts.Overdue(c.policy, due.Add(-1)); ok {
				t.Error("answered before the deadline")
			}
			d, ok := c.facts.Overdue(c.policy, due)
			if ok != c.want {
				t.Fatalf("answered %v", ok)
			}
			if !ok {
				return
			}
			if d.MLS.Code != document.AB || d.Send == nil || !d.Note || d.To != document.Forwarded || !d.MLSDue.IsZero() {
				t.Errorf("%+v", d)
			}
			if _, ok := c.facts.After(d).Overdue(c.policy, due.Add(time.Hour)); ok {
				t.Error("answered twice")
			}
		})
	}
}

// Slow forwarding shortens the backend's time: after fifteen minutes nothing is
// left of it, and the deadline of the forwarded document has passed already.
func TestTheDeadlineRunsFromReception(t *testing.T) {
	t.Parallel()
	at := noon.Add(15 * time.Minute)
	d := must(t)(the(document.Retry, verdict("passed")).Attempted(taken(true), with(api), at))
	if d.MLSDue.IsZero() || d.MLSDue.After(at) {
		t.Fatalf("due %s", d.MLSDue)
	}
	f := the(document.Retry, verdict("passed")).After(d)
	if d, ok := f.Overdue(with(api), at); !ok || d.Send == nil {
		t.Errorf("the fallback does not go out at once: %+v", d)
	}
	// A clock that is ahead, or none, does not move the deadline beyond reception.
	for _, stamp := range []time.Time{{}, noon.Add(time.Hour)} {
		f := the(document.Forwarded, func(f *document.Facts) { f.AS4At = stamp })
		if due, ok := f.MLSDeadline(with(api)); !ok || !due.Equal(noon.Add(5*time.Minute)) {
			t.Errorf("stamp %s: due %s", stamp, due)
		}
	}
}
