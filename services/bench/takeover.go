package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/child"
	"github.com/posthouse-io/posthouse/pkg/transport"
	"github.com/posthouse-io/posthouse/services/sender"
	"github.com/posthouse-io/posthouse/services/watchdog"
)

// senderOrder is what a sender child is told, senderAnswer what it says: one line
// for each delivery that it has begun, or what ended it.
type senderOrder struct {
	DatabaseURL string        `json:"database_url"`
	NATSURL     string        `json:"nats_url"`
	Lease       time.Duration `json:"lease"`
}

type senderAnswer struct {
	Began string `json:"began,omitempty"`
	Error string `json:"error,omitempty"`
}

// ServeSender is the role bench-sender: a sender whose sends never end, until in
// ends or, rather, until it is killed.
func ServeSender(ctx context.Context, in io.Reader, out, log io.Writer) error {
	var order senderOrder
	lines := bufio.NewReader(in)
	if err := readOrder(lines, &order); err != nil {
		return err
	}
	cfg, err := senderConfig(order.DatabaseURL, order.NATSURL, order.Lease)
	if err != nil {
		return err
	}
	cfg.LogTo, cfg.ShutdownTimeout = log, time.Second
	say := json.NewEncoder(out)
	var mu sync.Mutex
	stuck := &way{takes: func(m transport.Message) time.Duration {
		mu.Lock()
		defer mu.Unlock()
		_ = say.Encode(senderAnswer{Began: m.ID.String()}) // nobody hears it: then nobody waits for it
		return time.Hour
	}}
	var group errgroup.Group
	running, stop := context.WithCancel(ctx)
	defer stop()
	group.Go(func() error {
		_, _ = io.Copy(io.Discard, lines)
		stop()
		return nil
	})
	group.Go(func() error {
		err := sender.RunWith(running, cfg, stuck)
		if running.Err() == nil { // whoever started us hears it and ends our input
			mu.Lock()
			defer mu.Unlock()
			err = errors.Join(err, say.Encode(senderAnswer{Error: fmt.Sprint("the sender ended by itself: ", err)}))
		}
		return err
	})
	return group.Wait()
}

// takeover kills a sender with work in its hands, and tells how long it takes
// until another sender has all of that work in its own.
func (s *servers) takeover(ctx context.Context, rows int, lease time.Duration) (took time.Duration, err error) {
	err = s.on(ctx, ground{}, func(ctx context.Context, at *site) error {
		if err := at.accept(ctx, bunch{tenant, at.lane, "r", rows}); err != nil {
			return err
		}
		first, err := spawn(s.program, RoleSender, senderOrder{at.url, at.natsURL, lease}, s.log)
		if err != nil {
			return err
		}
		defer first.Kill()
		if err := begins(ctx, first, rows); err != nil {
			return err
		}
		watch, err := watchdogConfig(at)
		if err != nil {
			return err
		}
		out := noop(rows)
		return alongside(ctx, func(ctx context.Context) error { return watchdog.Run(ctx, watch) }, func(ctx context.Context) error {
			return at.sending(ctx, out, func(ctx context.Context) error {
				if err := at.workers(ctx, 2); err != nil {
					return err
				}
				killed := time.Now()
				first.Kill()
				err := out.all(ctx)
				took = time.Since(killed)
				return err
			}, func(cfg *sender.Config) {
				if lease > 0 {
					cfg.Lease = lease
				}
			})
		})
	})
	return took, err
}

// begins returns when a sender child has begun n different deliveries.
func begins(ctx context.Context, c *child.Process, n int) error {
	begun := make(map[string]bool)
	for len(begun) < n {
		var answer senderAnswer
		if err := c.Hear(ctx, &answer); err != nil {
			return err
		}
		if answer.Error != "" {
			return errors.New(answer.Error)
		}
		if _, err := delivery.ParseID(answer.Began); err == nil {
			begun[answer.Began] = true
		}
	}
	return nil
}

// workers returns when n senders have joined.
func (at *site) workers(ctx context.Context, n int) error {
	return until(ctx, 10*time.Millisecond, func() (there bool, err error) {
		err = at.db.QueryRow(ctx, "SELECT count(*) >= $1 FROM worker", n).Scan(&there)
		return there, err
	})
}

func watchdogConfig(at *site) (watchdog.Config, error) {
	cfg, _, err := daemon.Load[watchdog.Config]([]string{"DATABASE_URL=" + at.url, "NATS_URL=" + at.natsURL, "HEALTH_LISTEN="}, nil)
	cfg.LogTo = at.servers.log
	return cfg, err
}
