package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// databaseFaults is F3, F4, F14 and F15: what can happen between the services and
// the record.
func databaseFaults() []Scenario {
	mixed := Load{Rate: 40, Make: mixedMail}
	away := func(down func(context.Context, *Run) error, how time.Duration) func(context.Context, *Run) error {
		return func(ctx context.Context, r *Run) error {
			if err := r.Acknowledged(ctx, 100); err != nil {
				return err
			}
			if err := down(ctx, r); err != nil {
				return err
			}
			if err := pause(ctx, how); err != nil {
				return err
			}
			if err := r.StartPostgres(ctx); err != nil {
				return err
			}
			return r.Acknowledged(ctx, 100)
		}
	}
	fast := func(ctx context.Context, r *Run) error { return r.StopPostgres(ctx) }
	crash := func(_ context.Context, r *Run) error { r.KillPostgres(); return nil }
	return []Scenario{
		{Name: "F3.fast", Fault: "PostgreSQL restarts (fast), twice", Load: mixed, Do: each(away(fast, 0), away(fast, time.Second))},
		{Name: "F3.immediate", Fault: "PostgreSQL crashes and recovers, twice", Load: mixed, Do: each(away(crash, 0), away(crash, time.Second))},
		{Name: "F3.outage", Fault: "PostgreSQL is away for 20 s", Note: "compressed from 60 s: leases are 3 s instead of 15 s", Load: mixed, Do: away(fast, 20*time.Second)},
		{Name: "F3.terminate", Fault: "every session is terminated each 200 ms for 8 s", Load: mixed, Do: func(ctx context.Context, r *Run) error {
			if err := r.Acknowledged(ctx, 100); err != nil {
				return err
			}
			return r.Terminate(ctx, 40, 200*time.Millisecond)
		}},
		{Name: "F3.readonly", Fault: "PostgreSQL is read-only for 6 s", Load: mixed, Do: func(ctx context.Context, r *Run) error {
			if err := r.Acknowledged(ctx, 100); err != nil {
				return err
			}
			if err := r.ReadOnly(ctx, true); err != nil {
				return err
			}
			if err := pause(ctx, 6*time.Second); err != nil {
				return err
			}
			if err := r.ReadOnly(ctx, false); err != nil {
				return err
			}
			return r.Acknowledged(ctx, 100)
		}},
		{Name: "F4", Fault: "the answer to a COMMIT is lost: acceptances, claims, results, letters, five of each", Load: mixed,
			Rules: Rules{NoDuplicates: true, NoUnknown: true}, Do: func(ctx context.Context, r *Run) error { return r.loseAnswers(ctx, 5, answers()) }},
		{Name: "F14", Fault: "xmin pinned for 20 s under load", Note: "compressed from 10 minutes; that it is flat over hours is the bench's to show", Load: Load{Rate: 60, Make: plainMail},
			Rules: Rules{NoDuplicates: true, NoUnknown: true, Dwell: map[string]time.Duration{"acme": 5 * time.Second}}, Do: pinSnapshot},
		{Name: "F15", Fault: "an intake that hangs longer than its AckWait (40 s of silence to the database)", Load: Load{Rate: 20, Make: plainMail}, Settle: 2 * time.Minute,
			Do: func(ctx context.Context, r *Run) error {
				if err := r.Acknowledged(ctx, 60); err != nil {
					return err
				}
				r.note("silence between sender-1 and PostgreSQL")
				r.Service(oneSender).Database.Set(Fault{Silent: [2]bool{true, true}})
				if err := pause(ctx, 40*time.Second); err != nil {
					return err
				}
				r.Service(oneSender).Database.Heal()
				return r.Acknowledged(ctx, 60)
			}},
	}
}

// answer is one to a COMMIT of a service.
type answer struct{ service, label string }

func answers() []answer {
	return []answer{{oneSender, "accept:done"}, {oneSender, "claim:done"}, {oneSender, "settle:done"}, {oneDeadLetter, "archive:done"}}
}

func (r *Run) loseAnswers(ctx context.Context, rounds int, list []answer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 90*time.Second, fmt.Errorf("some answer never came"))
	defer cancel()
	for range rounds {
		for _, p := range list {
			trap := r.Service(p.service).Database.Arm(&Trap{Way: Down, Label: p.label, Skip: r.Rand.IntN(3), Do: Cut})
			if err := trap.Fired(ctx); err != nil {
				return err
			}
			r.note("lost on its way to %s: %s", p.service, p.label)
		}
	}
	return nil
}

func pinSnapshot(ctx context.Context, r *Run) error {
	if err := r.Acknowledged(ctx, 60); err != nil {
		return err
	}
	r.note("a transaction pins xmin for 20 s")
	tx, err := r.DB.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		return fmt.Errorf("pin xmin: %w", err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err := tx.Exec(ctx, "SELECT count(*) FROM queue"); err != nil {
		return fmt.Errorf("pin xmin: %w", err)
	}
	return pause(ctx, 20*time.Second)
}
