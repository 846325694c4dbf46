package client

import (
	"context"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Lanes lists destinations with what protects them. A key that no lane has is a
// *bus.Error with code 404.
func (c *Client) Lanes(ctx context.Context, f delivery.LaneFilter) ([]delivery.LaneStatus, error) {
	return list[delivery.LaneStatus](ctx, c, "lanes", f)
}

// OpenBreaker stops a lane for command.For; its breaker then lets probes through.
func (c *Client) OpenBreaker(ctx context.Context, command delivery.LaneCommand) (*delivery.LaneStatus, error) {
	return ask[delivery.LaneStatus](ctx, c, "sender", "breaker-open", command)
}

// ResetBreaker lets a lane go on at once, and forgets its failures and caps.
func (c *Client) ResetBreaker(ctx context.Context, command delivery.LaneCommand) (*delivery.LaneStatus, error) {
	return ask[delivery.LaneStatus](ctx, c, "sender", "breaker-reset", command)
}

// Pause lets a lane, a tenant or a channel rest. What arrives for it is kept.
func (c *Client) Pause(ctx context.Context, command delivery.PauseCommand) error {
	_, err := ask[struct{}](ctx, c, "sender", "pause", command)
	return err
}

// Resume ends a pause; false: there was none.
func (c *Client) Resume(ctx context.Context, command delivery.PauseCommand) (bool, error) {
	answer, err := ask[struct {
		Changed bool `json:"changed"`
	}](ctx, c, "sender", "resume", command)
	return err == nil && answer.Changed, err
}

// Pauses lists the tenants and channels that rest. A lane that rests says so in
// its LaneStatus.
func (c *Client) Pauses(ctx context.Context) ([]delivery.Pause, error) {
	return list[delivery.Pause](ctx, c, "pauses", nil)
}

// list asks the sender for several.
func list[T any](ctx context.Context, c *Client, verb string, in any) ([]T, error) {
	all, err := ask[[]T](ctx, c, "sender", verb, in)
	if err != nil {
		return nil, err
	}
	return *all, nil
}
