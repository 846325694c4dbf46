package chaos

import (
	"context"
	"fmt"
	"os"
	"time"
)

// point is a moment at which a service is killed: when a message with this label
// is on the wire. What was on its way does not arrive.
type point struct {
	name    string
	service string
	wire    func(*Run, *Service) *Proxy
	way     Way
	label   string
	deliver bool // the message arrives all the same, and its answer does not
}

func toDatabase(_ *Run, v *Service) *Proxy { return v.Database }
func toBus(_ *Run, v *Service) *Proxy      { return v.Bus }
func toMail(r *Run, _ *Service) *Proxy     { return r.Mail }

const (
	oneSender     = Sender + "-1"
	oneDeadLetter = DeadLetter + "-1"
)

// points are those of F1, in the order of a delivery's life.
func points() []point {
	return []point{
		{"a request is about to be received", oneSender, toBus, Down, "deliver:requests", false},
		{"received, not yet in the database", oneSender, toDatabase, Up, "accept", false},
		{"before the commit of the acceptance", oneSender, toDatabase, Up, "accept:commit", false},
		{"after the commit of the acceptance", oneSender, toDatabase, Down, "accept:done", false},
		{"before the acknowledgement", oneSender, toBus, Up, "ack:requests", false},
		{"before the commit of a claim", oneSender, toDatabase, Up, "claim:commit", false},
		{"after the commit of a claim", oneSender, toDatabase, Down, "claim:done", false},
		{"connected to the mail server", oneSender, toMail, Down, "greeting", false},
		{"before DATA", oneSender, toMail, Up, "data", false},
		{"before the final dot", oneSender, toMail, Up, "dot", false},
		{"after the final dot, before its reply", oneSender, toMail, Up, "dot", true},
		{"the reply to the dot is on its way", oneSender, toMail, Down, "taken", false},
		{"the reply has come, before the commit of a result", oneSender, toDatabase, Up, "settle:commit", false},
		{"after the commit of a result", oneSender, toDatabase, Down, "settle:done", false},
		{"before an event is published", oneSender, toBus, Up, "publish:event", false},
		{"an event is published, not acknowledged", oneSender, toBus, Down, "puback:event", false},
		{"before the outbox row goes", oneSender, toDatabase, Up, "remove", false},
		{"a dead event is about to be received", oneDeadLetter, toBus, Down, "deliver:events", false},
		{"before the commit of a letter", oneDeadLetter, toDatabase, Up, "archive:commit", false},
		{"after the commit of a letter", oneDeadLetter, toDatabase, Down, "archive:done", false},
		{"before a letter is published", oneDeadLetter, toBus, Up, "publish:letter", false},
		{"before the dead event is acknowledged", oneDeadLetter, toBus, Up, "ack:events", false},
	}
}

// crashes is F1. A claim of its own happens only when the intake found no free
// slot: with few slots, that is often.
func crashes() []Scenario {
	return []Scenario{{
		Name: "F1", Fault: fmt.Sprintf("kill -9 at each of %d steps, found on the wire", len(points())), Load: Load{Rate: 40, Make: mixedMail},
		Config: Config{Env: map[string]string{"MAIL_SEND_CONCURRENCY": "4", "MAIL_SERVER_MAX_CONNECTIONS": "4", "MAIL_SERVER_IDLE_TIMEOUT": "1s"}},
		Do:     func(ctx context.Context, r *Run) error { return crashAt(ctx, r, points()) },
	}}
}

func crashAt(ctx context.Context, r *Run, list []point) error {
	for _, p := range list {
		if err := r.crash(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// crash waits for the point, kills, and starts the service again.
func (r *Run) crash(ctx context.Context, p point) error {
	v := r.Service(p.service)
	if err := r.Acknowledged(ctx, 10); err != nil {
		return fmt.Errorf("before point %q: %w", p.name, err)
	}
	wire := p.wire(r, v)
	trap := wire.Arm(&Trap{Way: p.way, Label: p.label, Skip: r.Rand.IntN(3), Do: func() bool {
		if p.deliver { // stopped first: no answer can reach it while the message travels
			return v.Stop() == nil
		}
		v.Kill()
		return false
	}})
	bounded, cancel := context.WithTimeoutCause(ctx, 30*time.Second, fmt.Errorf("point %q did not come", p.name))
	defer cancel()
	if err := trap.Fired(bounded); err != nil {
		return err
	}
	if p.deliver {
		if err := r.sinkCatchesUp(ctx); err != nil {
			return err
		}
		v.Kill()
	}
	r.note("%s: %s", p.service, p.name)
	return v.Start()
}

// sinkCatchesUp gives what is on the wire to the mail server a moment to arrive: a
// tenth of a second without another line in its ledger, or two seconds where another
// sender goes on writing.
func (r *Run) sinkCatchesUp(ctx context.Context) error {
	ledger := r.sinkFiles[len(r.sinkFiles)-1]
	for before, n := int64(-1), 0; n < 20; n++ {
		info, err := os.Stat(ledger)
		if err != nil {
			return fmt.Errorf("the mail server's ledger: %w", err)
		}
		if info.Size() == before {
			return nil
		}
		before = info.Size()
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}
