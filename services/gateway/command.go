package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/audit"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/lane"
)

// Reason is who orders a command and why, for the audit.
type Reason struct {
	Person string `header:"X-Audit-User" maxLength:"50" doc:"who orders it, beside the name of the token"`
	Why    string `query:"why" maxLength:"500" doc:"why, in a few words; the audit keeps it"`
}

func (r Reason) warrant(ctx context.Context) (delivery.Warrant, error) {
	w := delivery.Warrant{By: holder(ctx).Name, Why: r.Why}
	if r.Person != "" {
		w.By += ": " + r.Person
	}
	if w.Why == "" {
		w.Why = "ordered over HTTP, without a reason"
	}
	if err := w.Check(); err != nil {
		return w, problem(http.StatusBadRequest, err.Error())
	}
	return w, nil
}

type commanded struct {
	Named
	Reason
}

type lanesAnswer struct{ Body []delivery.LaneStatus }
type laneAnswer struct{ Body delivery.LaneStatus }

// commands adds what operators may do.
func (d *desk) commands(r *routes) {
	operators := []Role{Operator}
	answers := map[int]string{http.StatusBadRequest: "who or why is not valid", http.StatusNotFound: "no such document", http.StatusConflict: "its state does not allow it, or it is in work just now"}
	add(r, operation{id: "inbound-replay", method: http.MethodPost, path: "/api/ops/inbound/{sbdh}/replay", roles: operators, answers: answers,
		summary: "Forward a document again, whatever became of it"},
		func(ctx context.Context, in *commanded) (*statusAnswer, error) {
			return d.command(ctx, in, "document.replay", func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
				return f.Replay(d.policy, now)
			})
		})
	add(r, operation{id: "inbound-reverify", method: http.MethodPost, path: "/api/ops/inbound/{sbdh}/reverify-and-forward", roles: operators, answers: answers,
		summary: "Ask the verifiers again, and forward the document if they pass it"},
		func(ctx context.Context, in *commanded) (*statusAnswer, error) {
			return d.command(ctx, in, "document.reverify", func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
				return f.Reverify(d.policy, now)
			})
		})
	add(r, operation{id: "breakers", method: http.MethodGet, path: "/api/ops/circuit-breakers", roles: []Role{Operator, Reader}, everywhere: true,
		summary: "Lanes with their circuit breakers"},
		func(ctx context.Context, in *struct {
			Trouble bool `query:"trouble" doc:"only those that are not simply closed"`
		}) (*lanesAnswer, error) {
			lanes, err := d.breakers(ctx, delivery.LaneFilter{Trouble: in.Trouble})
			return &lanesAnswer{Body: lanes}, err
		})
	add(r, operation{id: "breaker-reset", method: http.MethodPost, path: "/api/ops/circuit-breakers/{key}/reset", roles: operators, everywhere: true,
		answers: map[int]string{http.StatusBadRequest: "who or why is not valid", http.StatusNotFound: "no such lane"}, summary: "Let a lane go on at once, and forget its failures and caps"},
		func(ctx context.Context, in *struct {
			Key string `path:"key" maxLength:"300" doc:"the lane, as the list names it"`
			Reason
		}) (*laneAnswer, error) {
			return d.reset(ctx, in.Key, in.Reason)
		})
}

// command is a change by an operator, with its audit entry.
func (d *desk) command(ctx context.Context, in *commanded, action string, decide docket.Decide) (*statusAnswer, error) {
	w, err := in.warrant(ctx)
	if err != nil {
		return nil, err
	}
	id, err := d.find(ctx, in.Named)
	if err != nil {
		return nil, err
	}
	s, err := d.clerk.Change(ctx, id, decide, func(ctx context.Context, tx pgx.Tx) error {
		return audit.Write(ctx, tx, w, action, []string{id.String()}, []string{"done"})
	})
	return &statusAnswer{Body: s}, err
}

func (d *desk) breakers(ctx context.Context, f delivery.LaneFilter) ([]delivery.LaneStatus, error) {
	now := time.Now()
	return d.lanes.List(ctx, f, func(v lane.View) string { return lane.Message(v, now) })
}

func (d *desk) reset(ctx context.Context, key string, by Reason) (*laneAnswer, error) {
	w, err := by.warrant(ctx)
	if err != nil {
		return nil, err
	}
	if !storable(key) {
		return nil, lane.ErrNotFound
	}
	if _, err := d.lanes.Reset(ctx, delivery.LaneCommand{Key: key, Warrant: w}); err != nil {
		return nil, err
	}
	lanes, err := d.breakers(ctx, delivery.LaneFilter{Key: key})
	if err == nil && len(lanes) == 0 {
		err = lane.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &laneAnswer{Body: lanes[0]}, nil
}
