package document

import "time"

// MLSDeadline is when the watchdog answers C2 instead of a backend that stays
// silent, and whether there is such a time: the document was forwarded, has no
// code, is no MLS or MLR, was not rejected, and the sender does not want failures
// only (such a document never gets a positive answer, and a code would only block
// the rejection that may still come).
//
// The time runs from the AS4 time stamp and not from the forwarding, because the
// answer is owed from then on: slow forwarding shortens the backend's time, and
// may leave none.
func (f Facts) MLSDeadline(p *Policy) (time.Time, bool) {
	if !p.MLS || !f.Missing() {
		return time.Time{}, false
	}
	return f.Origin().Add(p.APITimeout), true
}

// Overdue is the watchdog's answer; false when there is nothing to answer, or not
// yet. The caller may be late or early, or have an old deadline row: only the
// facts count.
func (f Facts) Overdue(p *Policy, now time.Time) (Decision, bool) {
	due, applies := f.MLSDeadline(p)
	if !applies || now.Before(due) {
		return Decision{}, false
	}
	d := f.keep(f.State, CauseMLSDeadline, Watchdog)
	d.Note = true
	d.MLS, d.Send = f.answer(situation{is: overdue}, p)
	return f.end(d, p), true
}
