package forwarder

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/audit"
	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/clerk"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/streams"
)

// operator answers questions and takes commands on posthouse.ops.forwarder.*.
type operator struct {
	desk   *clerk.Clerk
	policy *document.Policy
}

func operations(o *operator, log zerolog.Logger) bus.Service {
	s := bus.Service{Name: "posthouse-forwarder", Version: "1.0.0", Description: "received documents: where they are, and what operators and the backend do with them", Log: log}
	add := func(verb, description string, handle func(context.Context, bus.Request) (any, error)) {
		s.Endpoints = append(s.Endpoints, bus.Endpoint{Name: verb, Subject: streams.Ops("forwarder", verb), Description: description, Handle: handle})
	}
	add("status", "all that is known of one document, and what holds it", o.status)
	add("replay", "forward a document again, whatever became of it", o.replay)
	add("reverify", "ask the verifiers again, and forward it if they pass it", o.reverify)
	add("report-c4", "note the receiver's country that the backend tells", o.reportC4)
	add("mls-send", "answer C2 as the backend says", o.sendMLS)
	return s
}

func (o *operator) find(ctx context.Context, tenant, name string) (delivery.ID, error) {
	if name == "" {
		return delivery.ID{}, &bus.Error{Code: "400", Text: "id is empty: give an SBDH instance id or a document id"}
	}
	id, err := o.desk.Docs.Resolve(ctx, tenant, name)
	if errors.Is(err, docket.ErrNotFound) {
		return id, &bus.Error{Code: "404", Text: "no such document"}
	}
	return id, err
}

func (o *operator) status(ctx context.Context, req bus.Request) (any, error) {
	var ask delivery.Lookup
	if err := req.Decode(&ask); err != nil {
		return nil, err
	}
	id, err := o.find(ctx, ask.Tenant, ask.ID)
	if err != nil {
		return nil, err
	}
	return o.desk.Docs.Status(ctx, id)
}

func (o *operator) replay(ctx context.Context, req bus.Request) (any, error) {
	return o.command(ctx, req, "document.replay", func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
		return f.Replay(o.policy, now)
	})
}

func (o *operator) reverify(ctx context.Context, req bus.Request) (any, error) {
	return o.command(ctx, req, "document.reverify", func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
		return f.Reverify(o.policy, now)
	})
}

// command is a change by an operator, with its audit entry.
func (o *operator) command(ctx context.Context, req bus.Request, action string, decide docket.Decide) (any, error) {
	var c document.Command
	if err := req.Decode(&c); err != nil {
		return nil, err
	}
	if err := c.Check(); err != nil {
		return nil, &bus.Error{Code: "400", Text: err.Error()}
	}
	id, err := o.find(ctx, c.Tenant, c.ID)
	if err != nil {
		return nil, err
	}
	return o.change(ctx, id, decide, func(ctx context.Context, tx pgx.Tx) error {
		return audit.Write(ctx, tx, c.Warrant, action, []string{id.String()}, []string{"done"})
	})
}

// change says of what is refused why, in the codes of the bus.
func (o *operator) change(ctx context.Context, id delivery.ID, decide docket.Decide, also func(context.Context, pgx.Tx) error) (*document.Status, error) {
	status, err := o.desk.Change(ctx, id, decide, also)
	switch {
	case errors.Is(err, docket.ErrStale):
		return nil, &bus.Error{Code: "409", Text: "the document is in work just now; try again when the attempt has ended"}
	case errors.Is(err, document.ErrState), errors.Is(err, document.ErrMLSConflict):
		return nil, &bus.Error{Code: "409", Text: err.Error()}
	case errors.Is(err, document.ErrMLSNotEligible):
		return nil, &bus.Error{Code: "422", Text: err.Error()}
	case err != nil:
		return nil, err
	}
	return status, nil
}

func (o *operator) reportC4(ctx context.Context, req bus.Request) (any, error) {
	var c document.C4Report
	if err := req.Decode(&c); err != nil {
		return nil, err
	}
	id, err := o.find(ctx, c.Tenant, c.ID)
	if err != nil {
		return nil, err
	}
	return o.change(ctx, id, func(f document.Facts, _ int, _ time.Time) (document.Decision, error) {
		return f.ReportC4(c.Country, o.policy)
	}, nil)
}

// sendMLS is the seed's POST /api/mls/send; the order of the checks is its: 503, 400,
// 404, 422, 409.
func (o *operator) sendMLS(ctx context.Context, req bus.Request) (any, error) {
	var c document.MLSCommand
	if err := req.Decode(&c); err != nil {
		return nil, err
	}
	r := document.Report{Code: c.Code, Text: c.Text, Issues: c.Issues}
	switch err := o.policy.CheckReport(r); {
	case errors.Is(err, document.ErrMLSDisabled):
		return nil, &bus.Error{Code: "503", Text: err.Error()}
	case err != nil:
		return nil, &bus.Error{Code: "400", Text: err.Error()}
	}
	id, err := o.find(ctx, c.Tenant, c.ID)
	if err != nil {
		return nil, err
	}
	var reply document.Reply
	status, err := o.change(ctx, id, func(f document.Facts, _ int, _ time.Time) (d document.Decision, err error) {
		d, reply, err = f.Report(r, o.policy)
		return d, err
	}, nil)
	if err != nil {
		return nil, err
	}
	return document.MLSAnswer{Status: string(reply), Document: status}, nil
}
