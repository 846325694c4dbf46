package delivery

import (
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of an operator's command.
const (
	MaxCommandIDs = 1000 // deliveries or letters named in one call; more than that is a job
	maxBy         = 100  // bytes
)

// Warrant says who orders something and on what ground. It is kept in the audit
// with what was done.
type Warrant struct {
	By  string `json:"by"`            // the person, as the command line's --by or $USER tells
	Why string `json:"why,omitempty"` // required where deliveries or letters change
}

// Check says what is wrong with the warrant of a command that changes something.
func (w Warrant) Check() error { return w.check(true) }

func (w Warrant) check(needsWhy bool) error {
	switch {
	case w.By == "":
		return fmt.Errorf("by is empty: say who orders this")
	case w.Why == "" && needsWhy:
		return fmt.Errorf("why is empty: say in a few words why; it is kept in the audit")
	}
	if err := plain("by", w.By, maxBy); err != nil {
		return err
	}
	return plain("why", w.Why, MaxText)
}

// plain checks a text that a person wrote: one line of storable UTF-8.
func plain(field, s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("%s has %d bytes, at most %d", field, len(s), most)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s is not UTF-8", field)
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return fmt.Errorf("%s has a control character or a line break", field)
		}
	}
	return nil
}

// Expiry says what a retry does with expires_at; the zero value leaves it.
type Expiry struct {
	ExpiresAt *time.Time `json:"expires_at,omitempty"` // a new one
	NoExpiry  bool       `json:"no_expiry,omitempty"`  // take it away
}

func (e Expiry) check() error {
	if e.ExpiresAt != nil && e.NoExpiry {
		return fmt.Errorf("expires_at and no_expiry exclude each other")
	}
	return nil
}

// Changes tells whether it says anything.
func (e Expiry) Changes() bool { return e.ExpiresAt != nil || e.NoExpiry }

// RetryCommand puts deliveries back into the queue, due at once. It is the
// request of posthouse.ops.sender.retry, CommandReport the answer.
type RetryCommand struct {
	IDs []ID `json:"ids"`
	Warrant
	Expiry
}

// Check names the first field that is wrong.
func (c RetryCommand) Check() error {
	return firstFault(checkIDs(len(c.IDs)), c.Warrant.check(true), c.Expiry.check())
}

// CancelCommand calls deliveries back that wait. It is the request of
// posthouse.ops.sender.cancel, CommandReport the answer.
type CancelCommand struct {
	IDs []ID `json:"ids"`
	Warrant
}

// Check names the first field that is wrong.
func (c CancelCommand) Check() error {
	return firstFault(checkIDs(len(c.IDs)), c.Warrant.check(true))
}

// SettleCommand says of held deliveries what the operator has found out: that
// they arrived (sent) or did not (failed). It is the request of
// posthouse.ops.sender.settle, CommandReport the answer.
type SettleCommand struct {
	IDs []ID  `json:"ids"`
	As  State `json:"as"`
	Warrant
}

// Check names the first field that is wrong.
func (c SettleCommand) Check() error {
	var err error
	if c.As != Sent && c.As != Failed {
		err = fmt.Errorf("as is %.32q, want sent or failed", string(c.As))
	}
	return firstFault(checkIDs(len(c.IDs)), err, c.Warrant.check(true))
}

func checkIDs(n int) error {
	switch {
	case n == 0:
		return fmt.Errorf("ids is empty: name at least one, or start a job with a filter")
	case n > MaxCommandIDs:
		return fmt.Errorf("ids has %d entries, at most %d: start a job with a filter, or call several times", n, MaxCommandIDs)
	}
	return nil
}

func firstFault(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Effect is what a command did to one delivery, or why it left it alone.
type Effect string

const (
	EffectQueued    Effect = "queued"    // retried: in the queue, due at once
	EffectCancelled Effect = "cancelled" // called back
	EffectSettled   Effect = "settled"   // held no more, as the operator said

	EffectDue      Effect = "due"       // left alone: it is due already
	EffectInWork   Effect = "in_work"   // left alone: a worker has it
	EffectSent     Effect = "sent"      // left alone: it was sent
	EffectFinal    Effect = "final"     // left alone: it has ended
	EffectExpired  Effect = "expired"   // left alone: its expires_at has passed
	EffectNotHeld  Effect = "not_held"  // left alone: only what is held can be settled
	EffectNoTarget Effect = "no_target" // left alone: no recipient is left to send to
	EffectNotFound Effect = "not_found" // there is none
	EffectError    Effect = "error"     // the database refuses it; the log says why
)

// Done tells whether the delivery was moved.
func (e Effect) Done() bool {
	return e == EffectQueued || e == EffectCancelled || e == EffectSettled
}

// Hint says in words what happened and what to do.
func (e Effect) Hint() string {
	switch e {
	case EffectQueued:
		return "back in the queue, due at once"
	case EffectCancelled:
		return "called back"
	case EffectSettled:
		return "settled as you said"
	case EffectDue:
		return "it is due already: a sender takes it, or explain says what holds it"
	case EffectInWork:
		return "a worker is sending it just now: wait for the result"
	case EffectSent:
		return "the other side has accepted it: send a new request if it must go again"
	case EffectFinal:
		return "it has ended: nothing is left to do with it"
	case EffectExpired:
		return "its expires_at has passed: retry it with a new expires_at or with no_expiry"
	case EffectNotHeld:
		return "only a held delivery can be settled by hand"
	case EffectNoTarget:
		return "each recipient has accepted it: nobody is left to send to"
	case EffectNotFound:
		return "there is no such delivery"
	}
	return "it could not be changed; the log of the sender says why"
}

// CommandResult tells of one delivery.
type CommandResult struct {
	ID     ID     `json:"id"`
	Effect Effect `json:"effect"`
	Hint   string `json:"hint"`
}

// CommandReport tells of each delivery that a command named, in its order, each
// once.
type CommandReport struct {
	Done    int             `json:"done"`
	Skipped int             `json:"skipped"`
	Results []CommandResult `json:"results"`
}

// Add books one result.
func (r *CommandReport) Add(id ID, e Effect) {
	if e.Done() {
		r.Done++
	} else {
		r.Skipped++
	}
	r.Results = append(r.Results, CommandResult{ID: id, Effect: e, Hint: e.Hint()})
}

// TriageCommand marks dead letters as handled; it sends nothing again. It is the
// request of posthouse.ops.dead-letter.triage, TriageReport the answer. Why is
// the remark that stays with the letter.
type TriageCommand struct {
	EventIDs []string `json:"events"`
	As       string   `json:"as"` // resolved or discarded
	Warrant
}

// Check names the first field that is wrong.
func (c TriageCommand) Check() error {
	var err error
	if c.As != "resolved" && c.As != "discarded" {
		err = fmt.Errorf("as is %.32q, want resolved or discarded", c.As)
	}
	for i, id := range c.EventIDs {
		if err == nil {
			err = plain(fmt.Sprintf("events[%d]", i), id, 100)
		}
	}
	return firstFault(checkIDs(len(c.EventIDs)), err, c.Warrant.check(true))
}

// TriageReport tells of each letter, in order: resolved, discarded (done now or
// before), or not_found.
type TriageReport struct {
	Done    int            `json:"done"`
	Skipped int            `json:"skipped"`
	Results []TriageResult `json:"results"`
}

// TriageResult tells of one letter: what it is marked as now, and whether this
// call did it.
type TriageResult struct {
	EventID string `json:"event"`
	Triage  string `json:"triage"` // resolved, discarded or not_found
	Changed bool   `json:"changed"`
}

// AuditEntry is one action of an operator.
type AuditEntry struct {
	ID     ID        `json:"id"` // orders entries by time
	At     time.Time `json:"at"`
	By     string    `json:"by"`
	Action string    `json:"action"` // retry, cancel, settle, job.start, job.pause, job.resume, job.cancel, triage
	Target string    `json:"target"` // delivery, job or letter
	Result string    `json:"result"`
	Why    string    `json:"why,omitempty"`
}

// AuditFilter narrows a list of entries, newest first; zero fields match all. It
// is the request of posthouse.ops.sender.audit. The entries of a delivery include
// those of the jobs that touched it.
type AuditFilter struct {
	By     string `json:"by,omitempty"`
	Action string `json:"action,omitempty"`
	Target string `json:"target,omitempty"`
	Before *ID    `json:"before,omitempty"` // the last entry of the page before
	Limit  int    `json:"limit,omitempty"`  // default 50, at most 1000
}
