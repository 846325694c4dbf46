package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// Replay has events published again, or with DryRun counts them.
func (c *Client) Replay(ctx context.Context, r delivery.ReplayRequest) (*delivery.Replay, error) {
	var replay delivery.Replay
	if err := bus.Call(ctx, c.nc, streams.Ops("watchdog", "replay"), r, &replay); err != nil {
		return nil, fmt.Errorf("replay events: %w", err)
	}
	return &replay, nil
}

// Replays tells where replays stand: the last ones, newest first, or the one of
// that id.
func (c *Client) Replays(ctx context.Context, id string) ([]delivery.Replay, error) {
	var list []delivery.Replay
	err := bus.Call(ctx, c.nc, streams.Ops("watchdog", "replays"), delivery.ReplayLookup{ID: id}, &list)
	if err == nil && id != "" && len(list) != 1 {
		err = errors.New("the answer is not one replay")
	}
	if err != nil {
		return nil, fmt.Errorf("replays: %w", err)
	}
	return list, nil
}

// CancelReplay stops a replay that runs.
func (c *Client) CancelReplay(ctx context.Context, id string) (*delivery.Replay, error) {
	var replay delivery.Replay
	if err := bus.Call(ctx, c.nc, streams.Ops("watchdog", "replay-cancel"), delivery.ReplayLookup{ID: id}, &replay); err != nil {
		return nil, fmt.Errorf("cancel replay %s: %w", id, err)
	}
	return &replay, nil
}

// Reconciliation is what the last comparison of the event stream with the event
// table found.
func (c *Client) Reconciliation(ctx context.Context) (*delivery.Reconciliation, error) {
	var r delivery.Reconciliation
	if err := bus.Call(ctx, c.nc, streams.Ops("watchdog", "reconciliation"), nil, &r); err != nil {
		return nil, fmt.Errorf("reconciliation: %w", err)
	}
	return &r, nil
}

// Alarms lists every alarm that was ever raised, and whether it still is.
func (c *Client) Alarms(ctx context.Context) ([]delivery.Alarm, error) {
	var list []delivery.Alarm
	if err := bus.Call(ctx, c.nc, streams.Ops("watchdog", "alarms"), nil, &list); err != nil {
		return nil, fmt.Errorf("alarms: %w", err)
	}
	return list, nil
}
