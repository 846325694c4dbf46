package sender

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/lane"
)

// changed answers a command that may find nothing to do.
type changed struct {
	Changed bool `json:"changed"`
}

// named checks a text that is looked up: what the book cannot hold, it cannot have.
func named(field, s string) error {
	if len(s) > 300 || strings.ContainsFunc(s, unicode.IsControl) {
		return refuse(fmt.Errorf("%s is longer than 300 bytes or has control characters", field))
	}
	return nil
}

// laneRefusal turns an unknown lane into an answer.
func laneRefusal(err error) error {
	if errors.Is(err, lane.ErrNotFound) {
		return &bus.Error{Code: "404", Text: lane.ErrNotFound.Error()}
	}
	return err
}

// listLanes shows lanes; a key that no lane has is an error.
func (o *operator) listLanes(ctx context.Context, req bus.Request) (any, error) {
	var f delivery.LaneFilter
	if err := req.Decode(&f); err != nil {
		return nil, err
	}
	if err := named("key", f.Key); err != nil {
		return nil, err
	}
	list, err := o.lanesOf(ctx, f)
	if err == nil && f.Key != "" && len(list) == 0 { // none, or one without trouble
		_, err = o.laneOf(ctx, f.Key)
	}
	return list, laneRefusal(err)
}

func (o *operator) lanesOf(ctx context.Context, f delivery.LaneFilter) ([]delivery.LaneStatus, error) {
	now := time.Now()
	return o.lanes.List(ctx, f, func(v lane.View) string { return lane.Message(v, now) })
}

func (o *operator) laneOf(ctx context.Context, key string) (*delivery.LaneStatus, error) {
	list, err := o.lanesOf(ctx, delivery.LaneFilter{Key: key})
	if err == nil && len(list) == 0 {
		err = lane.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &list[0], nil
}

// openBreaker stops a lane for a while, and answers with the lane.
func (o *operator) openBreaker(ctx context.Context, req bus.Request) (any, error) {
	c, err := laneCommand(req, true)
	if err != nil {
		return nil, err
	}
	if _, err := o.lanes.Force(ctx, c); err != nil {
		return nil, laneRefusal(err)
	}
	return o.laneOf(ctx, c.Key)
}

// resetBreaker lets a lane go on at once, and answers with the lane.
func (o *operator) resetBreaker(ctx context.Context, req bus.Request) (any, error) {
	c, err := laneCommand(req, false)
	if err != nil {
		return nil, err
	}
	if _, err := o.lanes.Reset(ctx, c); err != nil {
		return nil, laneRefusal(err)
	}
	o.forget(c.Key)
	return o.laneOf(ctx, c.Key)
}

func laneCommand(req bus.Request, opens bool) (c delivery.LaneCommand, err error) {
	if err := req.Decode(&c); err != nil {
		return c, err
	}
	if err := c.Check(opens); err != nil {
		return c, refuse(err)
	}
	return c, named("key", c.Key)
}

// pause lets something rest; what arrives for it is kept.
func (o *operator) pause(ctx context.Context, req bus.Request) (any, error) {
	c, err := o.pauseCommand(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := o.lanes.Pause(ctx, c); err != nil {
		return nil, laneRefusal(err)
	}
	return changed{true}, nil
}

// resume ends a pause. Where there is none, nothing changes.
func (o *operator) resume(ctx context.Context, req bus.Request) (any, error) {
	c, err := o.pauseCommand(ctx, req)
	if err != nil {
		return nil, err
	}
	if c.For != 0 {
		return nil, refuse(errors.New("for: a resumption has no end; pause again instead"))
	}
	done, err := o.lanes.Resume(ctx, c)
	if err != nil {
		return nil, laneRefusal(err)
	}
	o.wake() // also where another has resumed it and died before it could ring
	return changed{done}, nil
}

// pauseCommand reads a command about something that exists, or may come to exist:
// a tenant is known by what it sends only.
func (o *operator) pauseCommand(ctx context.Context, req bus.Request) (c delivery.PauseCommand, err error) {
	if err := req.Decode(&c); err != nil {
		return c, err
	}
	if err := c.Check(); err != nil {
		return c, refuse(err)
	}
	if c.Scope != "lane" {
		return c, nil
	}
	if err := named("name", c.Name); err != nil {
		return c, err
	}
	_, err = o.laneOf(ctx, c.Name)
	return c, laneRefusal(err)
}

// pauses lists the tenants and channels that rest; lanes say so themselves.
func (o *operator) pauses(ctx context.Context, _ bus.Request) (any, error) {
	return o.lanes.Pauses(ctx)
}
