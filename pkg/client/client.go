// Package client is how a Go application talks to Posthouse: publish a request,
// ask where it is, watch it. Everything goes over NATS; any other NATS client
// can do the same with the subjects and JSON forms that the README shows.
//
// It decides nothing and keeps nothing. A Client is safe for concurrent use and
// does not own the connection it is given.
package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// Client speaks over one NATS connection.
type Client struct {
	nc *nats.Conn
	js jetstream.JetStream
}

// New makes a client of an open connection. domain is where its account finds the
// streams: empty for the account that holds them and for publishers, "posthouse"
// for the shipped server's operator and reader.
func New(nc *nats.Conn, domain string) (*Client, error) {
	js, err := jetstream.New(nc)
	if domain != "" {
		js, err = jetstream.NewWithDomain(nc, domain)
	}
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return &Client{nc: nc, js: js}, nil
}

// Send publishes a request for a tenant and returns when it is durably taken.
// The request's ID makes repeating safe: after an error, send the same again.
func (c *Client) Send(ctx context.Context, channel delivery.Channel, tenant string, r delivery.Request) error {
	if r.Version == 0 {
		r.Version = 1
	}
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("send %s: %w", r.ID, err)
	}
	return c.SendRaw(ctx, channel, tenant, r.ID, body)
}

// SendRaw publishes a request that is JSON already. id may be empty when the
// body has one.
func (c *Client) SendRaw(ctx context.Context, channel delivery.Channel, tenant, id string, body []byte) error {
	subject := streams.Send(string(channel), tenant)
	if subject == "" {
		return fmt.Errorf("send: channel %.70q and tenant %.70q must be of [A-Za-z0-9_-], at most %d bytes", channel, tenant, streams.MaxToken)
	}
	m := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{}}
	if id != "" {
		m.Header.Set(bus.HeaderMsgID, id)
	}
	if _, err := c.js.PublishMsg(ctx, m); err != nil {
		if errors.Is(err, jetstream.ErrNoStreamResponse) {
			return fmt.Errorf("send %s: no stream takes %s: run `posthouse streams apply`", id, subject)
		}
		return fmt.Errorf("send %s: %w", id, err)
	}
	return nil
}

// ErrNotFound says that Posthouse knows no such delivery (yet).
var ErrNotFound = errors.New("no such delivery")

// Status tells where a delivery is: by our id, or by the id that the request
// had and its tenant. A request that is published but not yet taken in is
// ErrNotFound.
func (c *Client) Status(ctx context.Context, id, tenant string) (*delivery.Status, error) {
	var s delivery.Status
	err := bus.Call(ctx, c.nc, streams.Ops("sender", "status"), delivery.Lookup{ID: id, Tenant: tenant}, &s)
	var refusal *bus.Error
	if errors.As(err, &refusal) && refusal.Code == "404" {
		return nil, fmt.Errorf("status of %s: %w", id, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("status of %s: %w", id, err)
	}
	return &s, nil
}

// DeadLetters lists what could not be delivered, newest first.
func (c *Client) DeadLetters(ctx context.Context, f delivery.LetterFilter) ([]delivery.Letter, error) {
	var letters []delivery.Letter
	if err := bus.Call(ctx, c.nc, streams.Ops("dead-letter", "list"), f, &letters); err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	return letters, nil
}
