package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// Filter says which events to watch; empty fields match all.
type Filter struct {
	State   delivery.State
	Channel delivery.Channel
	Tenant  string
	Since   time.Time // zero: from now on
}

// Watch calls each for every delivery event that matches, in stream order, until
// ctx ends (nil) or each returns an error (that error). Events may repeat and
// those of one delivery may come out of order: keep the highest version seen.
func (c *Client) Watch(ctx context.Context, f Filter, each func(*delivery.Event) error) error {
	return c.follow(ctx, streams.Events, streams.EventFilter(streams.KindDelivery, string(f.State), string(f.Channel), f.Tenant), f.Since,
		func(subject string, body []byte) error {
			ev, err := delivery.DecodeEvent(body)
			if err != nil {
				return fmt.Errorf("%s: %w", subject, err)
			}
			return each(ev)
		})
}

// WatchDeadLetters calls each for every dead letter, as Watch does for events.
func (c *Client) WatchDeadLetters(ctx context.Context, since time.Time, each func(subject string, body []byte) error) error {
	return c.follow(ctx, streams.DeadLetter, streams.AllDLQ(), since, each)
}

// follow reads a stream by an ordered consumer, which repairs itself.
func (c *Client) follow(ctx context.Context, stream, filter string, since time.Time, each func(subject string, body []byte) error) error {
	cfg := jetstream.OrderedConsumerConfig{FilterSubjects: []string{filter}, DeliverPolicy: jetstream.DeliverNewPolicy}
	if !since.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &since
	}
	cons, err := c.js.OrderedConsumer(ctx, stream, cfg)
	if err != nil {
		return fmt.Errorf("watch %s: %w", stream, err)
	}
	messages, err := cons.Messages()
	if err != nil {
		return fmt.Errorf("watch %s: %w", stream, err)
	}
	defer context.AfterFunc(ctx, messages.Stop)()
	defer messages.Stop()
	for {
		m, err := messages.Next()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, jetstream.ErrMsgIteratorClosed) {
				return nil
			}
			return fmt.Errorf("watch %s: %w", stream, err)
		}
		if err := each(m.Subject(), m.Data()); err != nil {
			return err
		}
	}
}
