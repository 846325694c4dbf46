package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/planted"
)

// Planted is a scenario under programs that do something wrong. The oracle must find
// it, under the invariant that is named; under sound programs the scenario holds.
type Planted struct {
	Scenario
	Bug      string // what the program does wrong
	Expect   string // invariant
	Sabotage bool   // it is done from outside, whatever the program
	Quick    bool   // nobody is killed, so that rest comes within seconds: what a dead sender had in hand comes again after 30
}

// PlantedTag is the tag of a build whose programs can be wrong.
const PlantedTag = "planted"

// Sound is the scenario under programs that do nothing wrong.
func (p Planted) Sound() Scenario {
	sound := p.Scenario
	sound.Config.Env = without(sound.Config.Env, "CHAOS_PLANTED")
	return sound
}

// PlantedBugs are the smallest scenarios that show each. All come to rest before they
// are judged, but the last: what is still under way would look like a loss.
func PlantedBugs() []Planted {
	plain := Load{Rate: 40, Make: plainMail}
	lone := Load{Rate: 40, Make: loneMail} // claims take turns between tenants: of one there is one turn
	narrow := map[string]string{"MAIL_SEND_CONCURRENCY": "2", "MAIL_SERVER_MAX_CONNECTIONS": "2"}
	single := map[string]string{"MAIL_SEND_CONCURRENCY": "1", "MAIL_SERVER_MAX_CONNECTIONS": "1"}
	plant := func(fault, bug, expect string, load Load, cfg Config, do func(context.Context, *Run) error) Planted {
		cfg.Env = with(cfg.Env, "CHAOS_PLANTED", fault)
		return Planted{Scenario: Scenario{Name: "planted." + fault, Fault: bug, Load: load, Config: cfg, Do: do}, Bug: bug, Expect: expect}
	}
	quick := func(p Planted) Planted { p.Quick = true; return p }
	at := func(name string) func(context.Context, *Run) error {
		return func(ctx context.Context, r *Run) error {
			for _, p := range points() {
				if p.name == name {
					return r.crash(ctx, p)
				}
			}
			return fmt.Errorf("planted: no point %q", name)
		}
	}
	return []Planted{
		plant(planted.Ack, "a request is acknowledged before it is committed", "I1", plain, Config{}, at("before the commit of the acceptance")),
		quick(plant(planted.Fence, "a result is stored without a look at fence, version and owner", "I5", plain, Config{Senders: 2, Env: single}, staleResult)),
		quick(plant(planted.Event, "a result is stored without its event", "I3", plain, Config{}, func(ctx context.Context, r *Run) error { return r.Acknowledged(ctx, 40) })),
		plant(planted.Outbox, "an outbox row goes before its events are acknowledged", "I4", plain, Config{}, at("before an event is published")),
		quick(plant(planted.Claim, "work is claimed by a subquery that locks nothing", "I2", lone, Config{Senders: 2, SinkDelay: 150 * time.Millisecond, Env: narrow}, claimTogether)),
		plant(planted.Reset, "leases are taken back without an attempt of unknown outcome", "I2", plain, Config{}, at("after the final dot, before its reply")),
		{Scenario: Scenario{Name: "planted.letter", Load: Load{Rate: 40, Make: mixedMail}, Settle: 5 * time.Second, Do: loseLetter}, Bug: "a dead letter is acknowledged before it is archived", Expect: "I7", Sabotage: true, Quick: true},
	}
}

// staleResult has a sender hang between the reply of the mail server and the commit
// of the result, longer than its lease, until the sweep has written something else;
// the other sender is kept from finishing the mail meanwhile.
func staleResult(ctx context.Context, r *Run) error {
	sleeper := r.Service(oneSender)
	if err := r.Service(Sender + "-2").Term(); err != nil {
		return err
	}
	if err := r.Acknowledged(ctx, 20); err != nil {
		return err
	}
	reply := r.Mail.Arm(&Trap{Way: Down, Label: "taken", Do: func() bool {
		sleeper.Database.Set(Fault{Silent: [2]bool{true, true}})
		return true
	}})
	if err := reply.Fired(ctx); err != nil {
		return err
	}
	r.note("silence between %s and PostgreSQL, after the reply to a dot", sleeper.Name)
	swept := make(chan struct{})
	r.Mail.Arm(&Trap{Way: Up, Label: "dot", Do: func() bool {
		select {
		case <-swept:
		case <-ctx.Done():
		}
		return true
	}})
	defer close(swept)
	if err := r.Service(Sender + "-2").Start(); err != nil {
		return err
	}
	err := until(ctx, "wait for the sweep to find the sleeper's mail", func(ctx context.Context) (found bool, err error) {
		err = r.DB.QueryRow(ctx, `SELECT EXISTS (SELECT FROM attempt WHERE verdict = 'unknown')`).Scan(&found)
		return found, err
	})
	if err != nil {
		return err
	}
	sleeper.Database.Heal()
	r.note("%s can store its result", sleeper.Name)
	return until(ctx, "wait for the sleeper's result", func(ctx context.Context) (found bool, err error) {
		err = r.DB.QueryRow(ctx, `SELECT EXISTS (SELECT FROM attempt u JOIN attempt a USING (delivery_id, fence) WHERE u.verdict = 'unknown' AND a.verdict <> 'unknown')`).Scan(&found)
		return found, err
	})
}

// claimTogether has two senders claim at the same time: the first has run its
// statement and has not committed when the second one's comes. It does so until work
// has been claimed again that nobody gave back, or often enough to say that it never is.
func claimTogether(ctx context.Context, r *Run) error {
	if err := r.Acknowledged(ctx, 40); err != nil {
		return err
	}
	for twice, n := false, 0; !twice && n < 10; n++ {
		second := r.Service(Sender + "-2").Database
		first := r.Service(oneSender).Database.Arm(&Trap{Way: Up, Label: "claim:commit", Do: func() bool {
			other := second.Arm(&Trap{Way: Up, Label: "claim:commit", Do: func() bool { return true }})
			_ = other.Fired(ctx)
			_ = pause(ctx, 100*time.Millisecond) // until it waits for the first one's locks, should it want any
			return true
		}})
		if err := first.Fired(ctx); err != nil {
			return err
		}
		r.note("both senders claim at once")
		if err := r.Acknowledged(ctx, 10); err != nil {
			return err
		}
		if err := r.DB.QueryRow(ctx, `SELECT EXISTS (SELECT FROM queue WHERE fence > 1) OR EXISTS (SELECT FROM attempt WHERE fence > 1)`).Scan(&twice); err != nil {
			return fmt.Errorf("look for what was claimed twice: %w", err)
		}
	}
	return r.Acknowledged(ctx, 10)
}

// loseLetter removes a letter as if it had never been stored.
func loseLetter(ctx context.Context, r *Run) error {
	if err := r.Acknowledged(ctx, 60); err != nil {
		return err
	}
	lost := func(ctx context.Context) (bool, error) {
		tag, err := r.DB.Exec(ctx, `DELETE FROM dead_letter WHERE ctid = (SELECT ctid FROM dead_letter LIMIT 1)`)
		return tag.RowsAffected() == 1, err
	}
	if err := until(ctx, "wait for a letter", lost); err != nil {
		return err
	}
	r.note("a letter is gone from the archive")
	return nil
}

func with(env map[string]string, name, value string) map[string]string {
	env = without(env, name)
	env[name] = value
	return env
}

func without(env map[string]string, name string) map[string]string {
	other := make(map[string]string, len(env)+1)
	for n, v := range env {
		if n != name {
			other[n] = v
		}
	}
	return other
}
