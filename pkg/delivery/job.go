package delivery

import (
	"fmt"
	"slices"
	"time"
)

// Rates of a job, in deliveries per second.
const (
	DefaultJobRate = 100
	MaxJobRate     = 10_000
)

// JobKind is what a job does to each delivery.
type JobKind string

const (
	JobRetry  JobKind = "retry"
	JobCancel JobKind = "cancel"
)

// JobStates lists the states that a job of the kind may ask for, and those it
// asks for when the filter names none.
func (k JobKind) JobStates() (may, byDefault []State) {
	switch k {
	case JobRetry:
		return []State{Pending, Retry, Held, Failed, Dead, Expired}, []State{Failed, Dead}
	case JobCancel:
		return []State{Pending, Retry, Held}, []State{Pending, Retry, Held}
	}
	return nil, nil
}

// JobFilter says which deliveries a job is for; fields are joined by and, zero
// ones match all.
type JobFilter struct {
	Tenant       string     `json:"tenant,omitempty"`
	Channel      Channel    `json:"channel,omitempty"`
	States       []State    `json:"states,omitempty"` // a retry: failed and dead unless named; a cancel: all that waits
	Code         string     `json:"code,omitempty"`   // of the last answer, such as 550 or CONFIG_NOT_RESOLVABLE
	Category     Category   `json:"category,omitempty"`
	AcceptedFrom *time.Time `json:"accepted_from,omitempty"` // inclusive
	AcceptedTo   *time.Time `json:"accepted_to,omitempty"`   // exclusive; never later than the job's start
	RequestID    string     `json:"request_id_prefix,omitempty"`
}

// check fills in the states and names the first field that is wrong.
func (f *JobFilter) check(kind JobKind) error {
	may, byDefault := kind.JobStates()
	if may == nil {
		return fmt.Errorf("kind is %.32q, want retry or cancel", string(kind))
	}
	if len(f.States) == 0 {
		f.States = byDefault
	}
	if len(f.States) > len(States()) {
		return fmt.Errorf("states has %d entries, there are %d", len(f.States), len(States()))
	}
	for _, s := range f.States {
		if !slices.Contains(may, s) {
			return fmt.Errorf("states has %.32q, a %s takes %v", string(s), kind, may)
		}
	}
	if f.AcceptedFrom != nil && f.AcceptedTo != nil && !f.AcceptedFrom.Before(*f.AcceptedTo) {
		return fmt.Errorf("accepted_from is not before accepted_to")
	}
	for _, field := range []struct {
		name, value string
	}{{"tenant", f.Tenant}, {"channel", string(f.Channel)}, {"code", f.Code}, {"category", string(f.Category)}, {"request_id_prefix", f.RequestID}} {
		if err := plain(field.name, field.value, MaxRequestID); err != nil {
			return err
		}
	}
	return nil
}

// JobCommand starts a job over all deliveries that a filter finds, or with
// DryRun only counts them. It is the request of posthouse.ops.sender.job-start;
// the answer is JobCount for a dry run, else Job.
type JobCommand struct {
	Kind   JobKind   `json:"kind"`
	Filter JobFilter `json:"filter"`
	Rate   int       `json:"rate,omitempty"` // deliveries per second; default 100
	DryRun bool      `json:"dry_run,omitempty"`
	Warrant
	Expiry
}

// Check fills in defaults and names the first field that is wrong.
func (c *JobCommand) Check() error {
	if c.Rate == 0 {
		c.Rate = DefaultJobRate
	}
	if c.Rate < 1 || c.Rate > MaxJobRate {
		return fmt.Errorf("rate is %d, want 1 to %d deliveries per second", c.Rate, MaxJobRate)
	}
	if c.Kind == JobCancel && c.Expiry.Changes() {
		return fmt.Errorf("expires_at and no_expiry are for a retry only")
	}
	err := firstFault(c.Filter.check(c.Kind), c.Expiry.check())
	if err == nil && !c.DryRun {
		err = c.Warrant.check(true)
	}
	return err
}

// JobCount is what a filter finds.
type JobCount struct {
	Count    int  `json:"count"`
	Complete bool `json:"complete"` // false: counting was cut short, there may be more
}

// JobState is where a job stands.
type JobState string

const (
	JobRunning   JobState = "running"
	JobPaused    JobState = "paused"
	JobDone      JobState = "done"
	JobCancelled JobState = "cancelled"
)

// Job is a command over all that a filter finds, and how far it has come.
type Job struct {
	ID        ID        `json:"id"`
	Kind      JobKind   `json:"kind"`
	State     JobState  `json:"state"`
	Filter    JobFilter `json:"filter"`
	Expiry              // of a retry
	Rate      int       `json:"rate"`
	Total     JobCount  `json:"total"` // found when it started
	Done      int       `json:"done"`  // moved
	Skipped   int       `json:"skipped"`
	Failed    int       `json:"failed"` // the database refused the move
	Fault     string    `json:"fault,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
	Warrant

	Results []CommandResult `json:"results,omitempty"` // only where asked for, ordered by delivery
}

// JobLookup asks for one job: the request of posthouse.ops.sender.job.
type JobLookup struct {
	ID      ID  `json:"id"`
	Results int `json:"results,omitempty"` // so many results per delivery, at most 1000
	After   ID  `json:"after"`             // the last delivery of the page before
}

// JobControl pauses, resumes or cancels a job: the request of
// posthouse.ops.sender.job-pause, job-resume and job-cancel. The answer is Job.
type JobControl struct {
	ID ID `json:"id"`
	Warrant
}

// Check names the first field that is wrong.
func (c JobControl) Check() error {
	if c.ID == (ID{}) {
		return fmt.Errorf("id is empty: name the job")
	}
	return c.Warrant.check(false)
}
