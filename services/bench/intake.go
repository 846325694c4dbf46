package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/streams"
)

// intake takes requests from the stream into the book and does nothing else: the
// lane is paused. It counts until the last request is acknowledged to the stream
// and its event by the stream.
func (s *servers) intake(ctx context.Context, requests int) (rate float64, err error) {
	dir, err := s.filled(ctx, requests)
	if err != nil {
		return 0, err
	}
	err = s.on(ctx, ground{natsDir: dir}, func(ctx context.Context, at *site) error {
		if _, err := at.db.Exec(ctx, "UPDATE lane SET paused_until = 'infinity'"); err != nil {
			return fmt.Errorf("pause the lane: %w", err)
		}
		began := time.Now()
		return at.sending(ctx, noop(1), func(ctx context.Context) error {
			if err := at.drained(ctx, requests); err != nil {
				return err
			}
			err := until(ctx, 5*time.Millisecond, func() (bool, error) {
				c, err := at.js.Consumer(ctx, streams.Requests, "sender")
				if err != nil {
					return false, fmt.Errorf("consumer: %w", err)
				}
				info := c.CachedInfo()
				return info.NumPending == 0 && info.NumAckPending == 0, nil
			})
			rate = perSecond(requests, began)
			return err
		})
	})
	return rate, err
}

// limitBatch is the number of rows in one insert of the bare table.
const limitBatch = 1000

// insertLimit inserts the same bytes into a bare table from one client, a
// thousand rows each: what intake could reach if it did nothing else.
func (s *servers) insertLimit(ctx context.Context, rows int) (rate float64, err error) {
	name, err := s.clone(ctx, blank)
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := s.drop(context.WithoutCancel(ctx), name); err == nil {
			err = e
		}
	}()
	conn, err := pgx.Connect(ctx, s.postgres.URL(name))
	if err != nil {
		return 0, fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "CREATE TABLE bare (id bigint PRIMARY KEY, body bytea NOT NULL)"); err != nil {
		return 0, fmt.Errorf("bare table: %w", err)
	}
	body := []byte(text(contentBytes))
	began := time.Now()
	for from := 0; from < rows; from += limitBatch {
		ids, bodies := make([]int64, min(limitBatch, rows-from)), make([][]byte, min(limitBatch, rows-from))
		for i := range ids {
			ids[i], bodies[i] = int64(from+i), body
		}
		if _, err := conn.Exec(ctx, "INSERT INTO bare (id, body) SELECT * FROM unnest($1::bigint[], $2::bytea[])", ids, bodies); err != nil {
			return 0, fmt.Errorf("insert: %w", err)
		}
	}
	return perSecond(rows, began), nil
}
