package chaos

import (
	"context"
	"time"
)

// sick is one ailment of a wire and how long it lasts.
type sick struct {
	name  string
	fault Fault
	last  time.Duration
}

// ailments are those of F7. Silence holds what was written back until the wire is
// sound again, as a network does that loses packets.
func ailments() []sick {
	both := [2]bool{true, true}
	return []sick{
		{"2 s of latency", Fault{Latency: 2 * time.Second, Jitter: 500 * time.Millisecond}, 7 * time.Second},
		{"silence, shorter than the lease", Fault{Silent: both}, 2 * time.Second},
		{"silence, longer than the lease", Fault{Silent: both}, 6 * time.Second},
		{"silence from the server alone", Fault{Silent: [2]bool{Down: true}}, 5 * time.Second},
		{"silence to the server alone", Fault{Silent: [2]bool{Up: true}}, 5 * time.Second},
		{"nobody is let in", Fault{Refuse: true}, 3 * time.Second},
		{"16 KiB a second", Fault{Rate: 16 << 10}, 5 * time.Second},
		{"reset after 6 KiB of answers", Fault{CutAfter: 6 << 10}, 5 * time.Second},
	}
}

// wireFaults is F7, a wire at a time.
func wireFaults() []Scenario {
	run := func(wires func(*Run) []*Proxy) func(context.Context, *Run) error {
		return func(ctx context.Context, r *Run) error {
			for _, s := range ailments() {
				if err := r.Acknowledged(ctx, 30); err != nil {
					return err
				}
				if err := r.sicken(ctx, wires(r), s); err != nil {
					return err
				}
			}
			return nil
		}
	}
	load := Load{Rate: 30, Make: mixedMail}
	two := Config{Senders: 2}
	return []Scenario{
		{Name: "F7.database", Fault: "one of two senders and PostgreSQL: latency, silence both ways and one way, resets, refusal, a trickle", Load: load, Config: two,
			Do: run(func(r *Run) []*Proxy { return []*Proxy{r.Service(oneSender).Database} })},
		{Name: "F7.everyone", Fault: "PostgreSQL and everyone: the same", Load: load, Config: two, Do: run(func(r *Run) []*Proxy {
			var all []*Proxy
			for _, v := range r.Services {
				all = append(all, v.Database)
			}
			return all
		})},
		{Name: "F7.bus", Fault: "NATS and everyone: the same", Load: load, Config: two, Do: run(func(r *Run) []*Proxy {
			var all []*Proxy
			for _, v := range r.Services {
				all = append(all, v.Bus)
			}
			return all
		})},
		{Name: "F7.mail", Fault: "the mail server and everyone: the same", Load: load, Note: "SMTP time-outs are 3 s to 4 s",
			Config: Config{Senders: 2, Env: map[string]string{"MAIL_TRANSPORT_CONNECTION_TIMEOUT": "3s", "MAIL_TRANSPORT_READ_TIMEOUT": "3s", "MAIL_TRANSPORT_SEND_TIMEOUT": "4s", "MAIL_TRANSPORT_FINAL_TIMEOUT": "4s"}},
			Do:     run(func(r *Run) []*Proxy { return []*Proxy{r.Mail} })},
	}
}

func (r *Run) sicken(ctx context.Context, wires []*Proxy, s sick) error {
	r.note("%s for %s: %s", wires[0].name, s.last, s.name)
	for _, w := range wires {
		w.Set(s.fault)
	}
	err := pause(ctx, s.last)
	for _, w := range wires {
		w.Heal()
	}
	return err
}
