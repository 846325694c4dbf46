package chaos

import (
	"context"
	"fmt"
	"time"
)

// stalls is F2: a sender sleeps beyond its lease, with one mail in work, and wakes
// up when another sender has done the work.
func stalls() []Scenario {
	config := Config{Senders: 2, Env: map[string]string{"MAIL_SEND_CONCURRENCY": "1", "MAIL_SERVER_MAX_CONNECTIONS": "1"}}
	load := Load{Rate: 10, Make: plainMail}
	return []Scenario{{
		Name: "F2.before", Fault: "SIGSTOP beyond the lease with one mail before its final dot, then SIGCONT", Config: config, Load: load,
		Rules: Rules{NoDuplicates: true},
		Do:    func(ctx context.Context, r *Run) error { return r.stall(ctx, Down, "go") },
		Check: func(_ context.Context, _ *Run, h *History) []Violation { return expect(h, 1, 0, 0, 1) },
	}, {
		Name: "F2.after", Fault: "SIGSTOP beyond the lease with one mail behind its final dot, then SIGCONT", Config: config, Load: load,
		Do: func(ctx context.Context, r *Run) error { return r.stall(ctx, Up, "dot") },
		// The lost lease may cut the sleeper off before it reads its answer.
		Check: func(_ context.Context, _ *Run, h *History) []Violation { return expect(h, 1, 1, 0, 1) },
	}}
}

// stall stops the sender when a message with this label comes by. On the way down
// the message waits until the sender wakes up; on the way up it has left.
func (r *Run) stall(ctx context.Context, way Way, label string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 60*time.Second, fmt.Errorf("the stall at %q took too long", label))
	defer cancel()
	sleeper, other := r.Service(oneSender), r.Service(Sender+"-2")
	if err := other.Term(); err != nil {
		return err
	}
	if err := r.Acknowledged(ctx, 20); err != nil {
		return err
	}
	wake := make(chan struct{})
	caught := make(chan error, 1)
	r.Mail.Arm(&Trap{Way: way, Label: label, Do: func() bool {
		caught <- sleeper.Stop()
		if way == Down {
			select {
			case <-wake:
			case <-ctx.Done():
			}
		}
		return true
	}})
	select {
	case err := <-caught:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := other.Start(); err != nil {
		return err
	}
	err := until(ctx, "wait for the sweep to find the sleeper's mail", func(ctx context.Context) (bool, error) {
		var done bool
		err := r.DB.QueryRow(ctx, `SELECT EXISTS (SELECT FROM attempt a JOIN delivery d ON d.id = a.delivery_id WHERE a.verdict = 'unknown' AND d.state = 'sent')`).Scan(&done)
		return done, err
	})
	if err != nil {
		return err
	}
	if err := sleeper.Continue(); err != nil {
		return err
	}
	close(wake)
	return r.Acknowledged(ctx, 20)
}

// expect compares the figures of a fault that is exactly repeatable: deliveries
// with an unknown attempt, mails beyond the first, late results (from, to).
func expect(h *History, unknown, duplicates, lateFrom, lateTo int) []Violation {
	r := &Result{}
	r.count(h)
	var found []Violation
	check := func(what string, have, from, to int) {
		if have < from || have > to {
			found = append(found, Violation{Invariant: "I2", Text: fmt.Sprintf("%d %s, want %d to %d", have, what, from, to)})
		}
	}
	check("attempts of unknown outcome", r.Unknown, unknown, unknown)
	check("mails beyond the first", r.Duplicates, duplicates, duplicates)
	check("late results", r.Late, lateFrom, lateTo)
	return found
}
