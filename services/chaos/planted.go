package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/streams"
)

// Planted is a scenario whose programs are right and whose ground is not: somebody
// does from outside what a wrong program would do from inside. The oracle must
// find it, under the invariant that is named.
type Planted struct {
	Scenario
	Bug    string // what a program would have to do wrong to look like this
	Expect string // invariant
}

// PlantedBugs are those that can be made from outside.
func PlantedBugs() []Planted {
	plant := func(name, bug, expect string, load Load, cfg Config, do func(context.Context, *Run) error) Planted {
		return Planted{Scenario: Scenario{Name: "planted." + name, Fault: bug, Load: load, Config: cfg, Do: do}, Bug: bug, Expect: expect}
	}
	plain := Load{Rate: 40, Make: plainMail}
	return []Planted{
		plant("event", "a result is settled without its event", "I3", plain, Config{}, func(ctx context.Context, r *Run) error {
			if err := r.sabotage(ctx, `CREATE FUNCTION lose_event() RETURNS trigger LANGUAGE plpgsql AS $$
				BEGIN IF NEW.state = 'sent' AND get_byte(uuid_send(NEW.aggregate), 15) < 40 THEN RETURN NULL; END IF; RETURN NEW; END $$`,
				`CREATE TRIGGER lose_event BEFORE INSERT ON event FOR EACH ROW EXECUTE FUNCTION lose_event()`); err != nil {
				return err
			}
			return r.Acknowledged(ctx, 100)
		}),
		plant("reset", "leases are taken back blindly, without an attempt of unknown outcome", "I2", plain, Config{Senders: 2, SinkDelay: 400 * time.Millisecond}, func(ctx context.Context, r *Run) error {
			for range 12 {
				if err := r.sabotage(ctx, `UPDATE queue SET state = 'ready', due_at = clock_timestamp(), owner = NULL, claimed_at = NULL WHERE state = 'leased'`); err != nil {
					return err
				}
				if err := r.Acknowledged(ctx, 8); err != nil {
					return err
				}
			}
			return nil
		}),
		plant("ack", "a request is acknowledged before it is committed", "I1", plain, Config{}, func(ctx context.Context, r *Run) error {
			v := r.Service(oneSender)
			if err := r.Acknowledged(ctx, 40); err != nil {
				return err
			}
			trap := v.Database.Arm(&Trap{Way: Up, Label: "accept:commit", Do: func() bool { v.Kill(); return false }})
			if err := trap.Fired(ctx); err != nil {
				return err
			}
			r.note("what was in the hands of the dead sender is acknowledged")
			c, err := r.JS.Consumer(ctx, streams.Requests, Sender)
			if err != nil {
				return fmt.Errorf("planted: %w", err)
			}
			s, err := r.JS.Stream(ctx, streams.Requests)
			if err != nil {
				return fmt.Errorf("planted: %w", err)
			}
			return s.Purge(ctx, jetstream.WithPurgeSequence(c.CachedInfo().Delivered.Stream+1))
		}),
		plant("outbox", "an outbox row goes before its events are acknowledged", "I4", plain, Config{}, func(ctx context.Context, r *Run) error {
			v := r.Service(oneSender)
			if err := r.Acknowledged(ctx, 40); err != nil {
				return err
			}
			trap := v.Bus.Arm(&Trap{Way: Up, Label: "publish:event", Do: func() bool { v.Kill(); return false }})
			if err := trap.Fired(ctx); err != nil {
				return err
			}
			return r.sabotage(ctx, `DELETE FROM outbox`)
		}),
		plant("letter", "a dead letter is acknowledged before it is archived", "I7", Load{Rate: 40, Make: mixedMail}, Config{}, func(ctx context.Context, r *Run) error {
			if err := r.Acknowledged(ctx, 100); err != nil {
				return err
			}
			return r.sabotage(ctx, `DELETE FROM dead_letter WHERE ctid = (SELECT ctid FROM dead_letter LIMIT 1)`)
		}),
	}
}

// sabotage runs statements as somebody with all rights.
func (r *Run) sabotage(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		r.note("sabotage: %.60s", sql)
		if _, err := r.DB.Exec(ctx, sql); err != nil {
			return fmt.Errorf("sabotage: %w", err)
		}
	}
	return nil
}
