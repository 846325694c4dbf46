package chaos

import (
	"context"
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/streams"
)

// busFaults is F6: what can happen to NATS and what it keeps.
func busFaults() []Scenario {
	mixed := Load{Rate: 40, Make: mixedMail}
	reconciling := Config{Env: map[string]string{"WATCHDOG_RECONCILE": "1m"}}
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
		{Name: "F6.tail", Fault: "NATS comes back with a store of some time ago", Load: mixed, Config: reconciling, Settle: 4 * time.Minute,
			Note: "the requests in the lost tail were in the database already; the reconciler has to publish the lost events again", Do: loseTail},
		{Name: "F6.deleted", Fault: "the event stream is deleted and made anew", Load: mixed, Config: reconciling, Settle: 4 * time.Minute, Do: func(ctx context.Context, r *Run) error {
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

// rebuilt waits until the stream has every event again.
func (r *Run) rebuilt(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 4*time.Minute, fmt.Errorf("the stream was not rebuilt"))
	defer cancel()
	r.cfg.Say("waiting for the reconciler to publish what the stream lacks")
	r.producer.hold()
	defer r.producer.release()
	return until(ctx, "wait for the reconciler", func(ctx context.Context) (bool, error) {
		var booked uint64
		if err := r.DB.QueryRow(ctx, `SELECT count(*) FROM event`).Scan(&booked); err != nil {
			return false, err
		}
		s, err := r.JS.Stream(ctx, streams.Events)
		if err != nil {
			return false, err
		}
		return s.CachedInfo().State.Msgs >= booked, pause(ctx, 500*time.Millisecond)
	})
}
