package chaos

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// breakerFaults is F18: the mail server comes and goes, and whoever probes it dies.
func breakerFaults() []Scenario {
	return []Scenario{{
		Name: "F18", Fault: "a mail server that flaps under four senders; all of them are killed while one probes it", Load: Load{Rate: 30, Make: plainMail}, Config: Config{Senders: 4},
		Note: "the registry of 10 000 destinations is a test of its room: one server is configured", Do: flap,
		Check: func(ctx context.Context, r *Run, h *History) []Violation { return r.closed(ctx, h) },
	}}
}

func flap(ctx context.Context, r *Run) error {
	for round := range 4 {
		if err := r.Acknowledged(ctx, 60); err != nil {
			return err
		}
		r.KillSink()
		if err := r.breaker(ctx, "open"); err != nil {
			return err
		}
		if err := pause(ctx, 2500*time.Millisecond); err != nil { // probes that fail
			return err
		}
		if round%2 == 0 {
			if err := r.StartSink(ctx); err != nil {
				return err
			}
			continue
		}
		if err := r.killProbe(ctx); err != nil {
			return err
		}
	}
	return nil
}

// killProbe brings the mail server back and kills every sender when the first of
// them has its greeting: that one holds the permit.
func (r *Run) killProbe(ctx context.Context) error {
	greeted := r.Mail.Arm(&Trap{Way: Down, Label: "greeting", Do: func() bool {
		r.each(Sender, (*Service).Kill)
		return false
	}})
	if err := r.StartSink(ctx); err != nil {
		return err
	}
	bounded, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("nobody probes the mail server"))
	defer cancel()
	if err := greeted.Fired(bounded); err != nil {
		return err
	}
	var errs error
	r.each(Sender, func(v *Service) {
		if err := v.Start(); err != nil {
			errs = err
		}
	})
	return errs
}

// each does something to every service of a program.
func (r *Run) each(program string, do func(*Service)) {
	for _, v := range r.Services {
		if v.Program == program {
			do(v)
		}
	}
}

// breaker waits until that of the mail server is in a state.
func (r *Run) breaker(ctx context.Context, state string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("no breaker is %s", state))
	defer cancel()
	return until(ctx, "wait for the breaker", func(ctx context.Context) (yes bool, err error) {
		err = r.DB.QueryRow(ctx, `SELECT EXISTS (SELECT FROM lane WHERE key LIKE 'mail$%' AND breaker = $1)`, state).Scan(&yes)
		return yes, err
	})
}

// closed says what must hold beyond the invariants: in the end the breaker is
// closed, and what it rejected was counted as no attempt, so that nobody ran out.
func (r *Run) closed(ctx context.Context, h *History) []Violation {
	var found []Violation
	var open int
	if err := r.DB.QueryRow(ctx, `SELECT count(*) FROM lane WHERE key LIKE 'mail$%' AND breaker <> 'closed'`).Scan(&open); err != nil || open > 0 {
		found = append(found, Violation{Invariant: "I6", Text: fmt.Sprintf("%d breakers are not closed in the end (%v)", open, err)})
	}
	opened := 0
	for _, t := range h.Told {
		if strings.HasPrefix(t.Subject, "posthouse.event.lane.open.") {
			opened++
		}
	}
	if opened == 0 {
		found = append(found, Violation{Invariant: "I4", Text: "a breaker opened, and the stream has no event of it"})
	}
	return found
}
