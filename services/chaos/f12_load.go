package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// loadFaults is F12, F17 and F20: too much work, and no rest.
func loadFaults() []Scenario {
	slow := Config{Senders: 3, SinkDelay: 50 * time.Millisecond}
	return []Scenario{
		{Name: "F12", Fault: "a backlog of 4 000 bulk mails of one tenant; another tenant's mails come in between; one worker of three is killed", Load: Load{Parallel: 64, Make: backlog, Rate: 400}, Config: slow, Settle: 2 * time.Minute,
			Note:  "compressed from 100 000; a slow destination beside a fast one needs a second mail server, which the sender does not have yet",
			Rules: Rules{Dwell: map[string]time.Duration{"small": 8 * time.Second}},
			Do: func(ctx context.Context, r *Run) error {
				if err := r.Acknowledged(ctx, 2000); err != nil {
					return err
				}
				r.Service(oneSender).Kill()
				return r.Acknowledged(ctx, 2000)
			}},
		{Name: "F17", Fault: "rolling restarts: SIGTERM of each service in turn, every 3 s, under load", Load: Load{Rate: 60, Make: plainMail}, Config: Config{Senders: 2, SinkDelay: 50 * time.Millisecond},
			Note: "every 3 s instead of 5 s", Rules: Rules{NoDuplicates: true, NoUnknown: true}, Do: func(ctx context.Context, r *Run) error { return r.roll(ctx, 8, 3*time.Second) }},
		{Name: "F20", Fault: "random faults from a seed for 60 s", Load: Load{Rate: 30, Make: mixedMail}, Config: Config{Senders: 2}, Settle: 2 * time.Minute,
			Do: func(ctx context.Context, r *Run) error { return r.nemesis(ctx, time.Minute) }},
	}
}

func backlog(step int, r *rand.Rand) []Request {
	if step%50 == 0 {
		id := fmt.Sprintf("s-%06d", step)
		return []Request{Mail("small", id, nil, "small-"+id+"@example.org").wants(sent())}
	}
	id := fmt.Sprintf("b-%06d", step)
	return []Request{Mail("bulky", id, func(m *delivery.Request) { m.Class = "bulk" }, "bulk-"+id+"@example.org").wants(sent())}
}

// roll stops and starts the services one after another, n times.
func (r *Run) roll(ctx context.Context, n int, every time.Duration) error {
	for i := range n {
		if err := r.Acknowledged(ctx, 20); err != nil {
			return err
		}
		v := r.Services[i%len(r.Services)]
		if err := v.Term(); err != nil {
			return err
		}
		if err := v.Start(); err != nil {
			return err
		}
		if err := pause(ctx, every); err != nil {
			return err
		}
	}
	return nil
}
