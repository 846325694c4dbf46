package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/streams"
)

// reconcile is how often the watchdog compares the streams with the database.
const reconcile = time.Minute

// busFaults is F6: what can happen to NATS and what it keeps.
func busFaults() []Scenario {
	mixed := Load{Rate: 40, Make: mixedMail}
	reconciling := Config{Env: map[string]string{"WATCHDOG_RECONCILE": reconcile.String()}}
	return []Scenario{
		{Name: "F6.kill", Fault: "kill -9 of NATS and restart, four times", Load: mixed, Do: func(ctx context.Context, r *Run) error {
			for i := range 4 {
				if err := r.Acknowledged(ctx, 60); err != nil {
					return err
				}
				r.KillNATS()
				if err := pause(ctx, time.Duration(i)*500*time.Millisecond); err != nil {
					return err
				}
				if err := r.StartNATS(ctx); err != nil {
					return err
				}
			}
			return nil
		}},
		{Name: "F6.tail", Fault: "NATS comes back with a store of some time ago", Load: mixed, Config: reconciling, Settle: 4 * time.Minute, Bound: 9 * time.Minute,
			Note: "the requests in the lost tail were in the database already; the reconciler has to publish the lost events again", Do: loseTail},
		{Name: "F6.deleted", Fault: "the event stream is deleted and made anew", Load: mixed, Config: reconciling, Settle: 4 * time.Minute, Bound: 9 * time.Minute, Do: func(ctx context.Context, r *Run) error {
			if err := r.Acknowledged(ctx, 150); err != nil {
				return err
			}
			r.note("stream %s is deleted", streams.Events)
			if err := r.JS.DeleteStream(ctx, streams.Events); err != nil {
				return fmt.Errorf("delete the stream: %w", err)
			}
			if err := pause(ctx, 2*time.Second); err != nil {
				return err
			}
			if err := r.ApplyStreams(ctx); err != nil {
				return err
			}
			return r.rebuilt(ctx)
		}},
	}
}

// loseTail copies the store, lets the house work on until all of it is in the
// database, and puts the copy in place.
func loseTail(ctx context.Context, r *Run) error {
	if err := r.Acknowledged(ctx, 100); err != nil {
		return err
	}
	r.KillNATS()
	old, err := r.CopyStore()
	if err != nil {
		return err
	}
	if err := r.StartNATS(ctx); err != nil {
		return err
	}
	if err := r.Acknowledged(ctx, 100); err != nil {
		return err
	}
	// The producers wait while nothing acknowledges: what they have an answer for
	// is in the database before the store goes.
	r.producer.hold()
	defer r.producer.release()
	err = until(ctx, "wait until the requests are in the database", func(ctx context.Context) (bool, error) {
		c, err := r.JS.Consumer(ctx, streams.Requests, Sender)
		if err != nil {
			return false, err
		}
		return c.CachedInfo().NumPending == 0 && c.CachedInfo().NumAckPending == 0, nil
	})
	if err != nil {
		return err
	}
	r.KillNATS()
	if err := r.RestoreStore(old); err != nil {
		return err
	}
	if err := r.StartNATS(ctx); err != nil {
		return err
	}
	r.producer.release()
	if err := r.Acknowledged(ctx, 100); err != nil {
		return err
	}
	return r.rebuilt(ctx)
}

// rebuilt waits until the streams have every event and every letter again. That the
// letters do not come is for the oracle to say: they have three looks of the watchdog.
func (r *Run) rebuilt(ctx context.Context) error {
	r.cfg.Say("waiting for the reconciler to publish what the streams lack")
	r.producer.hold()
	defer r.producer.release()
	events, cancel := context.WithTimeoutCause(ctx, 4*time.Minute, fmt.Errorf("the stream of events was not rebuilt"))
	defer cancel()
	if err := r.holds(events, streams.Events, `SELECT count(*) FROM event`); err != nil {
		return err
	}
	letters, cancel := context.WithTimeoutCause(ctx, 3*reconcile, fmt.Errorf("the stream of dead letters was not rebuilt"))
	defer cancel()
	if err := r.holds(letters, streams.DeadLetter, `SELECT count(*) FROM dead_letter`); err != nil {
		r.cfg.Say("%v", err)
	}
	return ctx.Err()
}

// holds waits until the stream has as many messages as the database counts.
func (r *Run) holds(ctx context.Context, stream, count string) error {
	return until(ctx, "wait for the reconciler", func(ctx context.Context) (bool, error) {
		var booked uint64
		if err := r.DB.QueryRow(ctx, count).Scan(&booked); err != nil {
			return false, err
		}
		s, err := r.JS.Stream(ctx, stream)
		if err != nil {
			return false, err
		}
		return s.CachedInfo().State.Msgs >= booked, pause(ctx, 500*time.Millisecond)
	})
}
