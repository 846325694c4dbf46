package sender

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/streams"
)

// operations answers questions and takes commands on posthouse.ops.sender.*.
func operations(o *operator, jobs *jobs, log zerolog.Logger) bus.Service {
	s := bus.Service{Name: "posthouse-sender", Version: "1.3.0", Description: "deliveries: where they are, and what operators do with them", Log: log}
	add := func(verb, description string, handle func(context.Context, bus.Request) (any, error)) {
		s.Endpoints = append(s.Endpoints, bus.Endpoint{Name: verb, Subject: streams.Ops("sender", verb), Description: description, Handle: handle})
	}
	each := func(verb, description string, handle func(context.Context, bus.Request) (any, error)) {
		add(verb, description, handle)
		e := &s.Endpoints[len(s.Endpoints)-1]
		e.Subject, e.Each = streams.OpsEach("sender", verb), true
	}
	add("status", "all that is known of one delivery, and what holds it", o.status)
	add("retry", "put deliveries back into the queue, due at once", o.retry)
	add("cancel", "call deliveries back that wait", o.cancel)
	add("settle", "say of held deliveries that they arrived or did not", o.settle)
	add("job-start", "retry or cancel all that a filter finds; dry_run only counts", jobs.start)
	add("jobs", "jobs, newest first", jobs.list)
	add("job", "how far one job has come, with results per delivery when asked for", jobs.show)
	add("job-pause", "let a job rest", jobs.turn(delivery.JobPaused))
	add("job-resume", "let a paused job go on", jobs.turn(delivery.JobRunning))
	add("job-cancel", "end a job where it stands", jobs.turn(delivery.JobCancelled))
	add("lanes", "destinations: breaker, limits, pause, and what waits there", o.listLanes)
	each("breakers", "breakers as each sender sees them, where that differs from the lane", o.instanceBreakers)
	add("breaker-open", "stop a lane for a while", o.openBreaker)
	add("breaker-reset", "close a lane's breaker, forget its failures and caps", o.resetBreaker)
	add("pause", "let a lane, a tenant or a channel rest; what arrives is kept", o.pause)
	add("resume", "end a pause", o.resume)
	add("pauses", "tenants and channels that rest", o.pauses)
	add("quota-set", "set or remove a monthly quota; works at once", o.setQuota)
	add("quotas", "monthly quotas that were set", o.listQuotas)
	add("usage", "what was used of each month, newest first", o.usage)
	add("audit", "what operators have done, newest first", o.audit)
	return s
}

// refuse says a fault of the request.
func refuse(err error) error { return &bus.Error{Code: "400", Text: err.Error()} }

func (o *operator) status(ctx context.Context, req bus.Request) (any, error) {
	var ask delivery.Lookup
	if err := req.Decode(&ask); err != nil {
		return nil, err
	}
	if ask.ID == "" {
		return nil, &bus.Error{Code: "400", Text: "id is empty: give a delivery id, or the client's id and its tenant"}
	}
	id, err := o.book.Find(ctx, ask.Tenant, ask.ID)
	if err == nil {
		var s *delivery.Status
		if s, err = o.book.Status(ctx, id); err == nil && ask.Tenant != "" && s.Tenant != ask.Tenant {
			err = ledger.ErrNotFound
		} else if err == nil {
			return s, nil
		}
	}
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, &bus.Error{Code: "404", Text: "no such delivery; a client's id is found with its tenant only"}
	}
	return nil, err
}
