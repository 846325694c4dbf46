package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/streams"
)

// quiet waits until nothing is left to do: no request is on its way in, nothing is
// in the queue but what a person holds, the outbox is empty, and every final event
// has been looked at for the archive. It returns what is left when bound is over.
func (s *Site) quiet(ctx context.Context, bound time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	const calm = 3 // looks in a row
	for n := 0; ; {
		err := s.left(ctx)
		if err == nil {
			if n++; n == calm {
				return nil
			}
		} else {
			n = 0
		}
		if pause(ctx, 150*time.Millisecond) != nil {
			if err == nil {
				err = errors.New("it was quiet for too short a time")
			}
			return err
		}
	}
}

// left tells what there is still to do; nil: nothing.
func (s *Site) left(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for _, c := range []struct{ stream, durable string }{{streams.Requests, Sender}, {streams.Events, DeadLetter}} {
		consumer, err := s.JS.Consumer(ctx, c.stream, c.durable)
		if errors.Is(err, jetstream.ErrConsumerNotFound) {
			return fmt.Errorf("consumer %s is not there", c.durable)
		}
		if err != nil {
			return fmt.Errorf("consumer %s: %w", c.durable, err)
		}
		if info := consumer.CachedInfo(); info.NumPending > 0 || info.NumAckPending > 0 {
			return fmt.Errorf("consumer %s has %d messages before it and %d in hand", c.durable, info.NumPending, info.NumAckPending)
		}
	}
	const sql = `SELECT (SELECT count(*) FROM queue WHERE state <> 'held'), (SELECT count(*) FROM outbox),
	(SELECT count(*) FROM event WHERE state IN ('dead', 'failed', 'expired', 'held')) - (SELECT count(*) FROM dead_letter WHERE source <> 'poison')`
	var queued, outbox, letters int
	if err := s.DB.QueryRow(ctx, sql).Scan(&queued, &outbox, &letters); err != nil {
		return fmt.Errorf("look into the database: %w", err)
	}
	if queued > 0 || outbox > 0 || letters > 0 {
		return fmt.Errorf("%d deliveries are in the queue, %d rows in the outbox, %d letters are not archived", queued, outbox, letters)
	}
	return nil
}

// until asks again and again until the answer is yes.
func until(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	var last error
	for {
		yes, err := ask(ctx)
		if err == nil && yes {
			return nil
		}
		if err != nil {
			last = err
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return errors.Join(fmt.Errorf("%s: %w", what, context.Cause(ctx)), last)
		}
	}
}
