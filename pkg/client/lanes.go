package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Lanes lists destinations with what protects them. A key that no lane has is a
// *bus.Error with code 404.
func (c *Client) Lanes(ctx context.Context, f delivery.LaneFilter) ([]delivery.LaneStatus, error) {
	return list[delivery.LaneStatus](ctx, c, "lanes", f)
}

// InstanceBreakers asks every sender what it knows of breakers beyond the lanes: what
// it has counted, and where it differs. It takes the answers of those that answer
// soon.
func (c *Client) InstanceBreakers(ctx context.Context) ([]delivery.InstanceBreaker, error) {
	var all []delivery.InstanceBreaker
	err := bus.CallEach(ctx, c.nc, "sender", "breakers", struct{}{}, func(answer []byte) error {
		var some []delivery.InstanceBreaker
		err := json.Unmarshal(answer, &some)
		all = append(all, some...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("breakers: %w", err)
	}
	slices.SortFunc(all, func(a, b delivery.InstanceBreaker) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Instance, b.Instance))
	})
	return all, nil
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
