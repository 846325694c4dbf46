package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// sent is what most requests must become.
func sent() []delivery.State { return []delivery.State{delivery.Sent} }

// plainMail is a load of mails that the mail server accepts at once, of three tenants.
func plainMail(step int, r *rand.Rand) []Request {
	id := fmt.Sprintf("r-%06d", step)
	q := Mail([]string{"acme", "bolt", "coil"}[step%3], id, nil, "to-"+id+"@example.org")
	q.Want, q.InHeader = sent(), r.IntN(2) == 0
	return []Request{q}
}

// loneMail is plainMail of one tenant.
func loneMail(step int, r *rand.Rand) []Request {
	requests := plainMail(step, r)
	for i := range requests {
		requests[i].Tenant = "acme"
	}
	return requests
}

// mixedMail has mails of several recipients, refused ones, deferred ones, two
// equal requests, two that contradict each other, and some that nobody can read.
func mixedMail(step int, r *rand.Rand) []Request {
	id := fmt.Sprintf("m-%06d", step)
	tenant := []string{"acme", "bolt"}[step%2]
	one := func(want []delivery.State, to ...string) Request {
		q := Mail(tenant, id, nil, to...)
		q.Want, q.InHeader = want, r.IntN(2) == 0
		return q
	}
	switch n := r.IntN(100); {
	case n < 55:
		return []Request{one(sent(), "to-"+id+"@example.org")}
	case n < 65:
		return []Request{one(sent(), "a-"+id+"@example.org", "b-"+id+"@example.org", "c-"+id+"@example.org")}
	case n < 70:
		return []Request{one([]delivery.State{delivery.Failed}, "refuse+"+id+"@example.org")}
	case n < 75:
		return []Request{one(sent(), "refuse+"+id+"@example.org", "to-"+id+"@example.org")}
	case n < 82:
		return []Request{one(sent(), "defer-2+"+id+"@example.org")}
	case n < 87:
		q := one(sent(), "key-"+id+"@example.org")
		return []Request{Mail(tenant, id, func(m *delivery.Request) { m.OrderingKey = fmt.Sprint("k", step%5) }, q.Recipients...).wants(sent())}
	case n < 92: // the same again, at once and later
		q := one(sent(), "twin-"+id+"@example.org")
		again := q
		again.After = time.Duration(r.IntN(400)) * time.Millisecond
		return []Request{q, again}
	case n < 96: // another body under the same id: the first wins, whichever that is
		q := one(sent(), "first-"+id+"@example.org")
		rival := Mail(tenant, id, nil, "second-"+id+"@example.org").wants(sent())
		rival.After = time.Duration(r.IntN(200)) * time.Millisecond
		return []Request{q, rival}
	}
	q := Request{Tenant: tenant, ID: id, Poison: true, Body: fmt.Appendf(nil, `{"version":1,"id":%q,"to":["x@example.org"],"colour":"red"}`, id)}
	switch r.IntN(3) {
	case 0:
		q.Body = fmt.Appendf(nil, `{"version":1,"id":%q,`, id)
	case 1:
		q.Body = fmt.Appendf(nil, `{"version":99,"id":%q,"to":["x@example.org"],"subject":"s","text":"t"}`, id)
	}
	return []Request{q}
}

func (q Request) wants(states []delivery.State) Request {
	q.Want = states
	return q
}

// Scenarios is the table, in its order. A name with a dot is a part of its fault.
func Scenarios() []Scenario {
	var all []Scenario
	for _, part := range [][]Scenario{crashes(), stalls(), databaseFaults(), busFaults(), wireFaults(), diskFaults(), requestFaults(), loadFaults(), mailFaults(), breakerFaults(), upgradeFaults()} {
		all = append(all, part...)
	}
	return append(all, missing()...)
}

// missing are the faults that nothing here can make yet, each with the reason.
func missing() []Scenario {
	return []Scenario{
		{Name: "F5", Fault: "failover to a standby that lacks the tail", Missing: "needs a standby (pg_basebackup, promotion) and the comparison of lost results; the private cluster has one server"},
		{Name: "F8", Fault: "clocks: application an hour off, PostgreSQL ten minutes", Missing: "needs a clock that can be injected into the programs; libfaketime does not reach Go"},
		{Name: "F13", Fault: "10 M finished rows, idle polling", Missing: "measured by `posthouse bench` (buffers per claim), not by a fault"},
		{Name: "AS4", Fault: "F1, F2 and F16 on Peppol deliveries and inbound documents", Missing: "the site runs no gateway, forwarder or verifier yet"},
		{Name: "F6.cluster", Fault: "three NATS nodes, one killed or partitioned", Missing: "the site runs one node"},
	}
}

// Find gives the scenarios of a name: F3 means all its parts.
func Find(name string) []Scenario {
	var found []Scenario
	for _, s := range Scenarios() {
		if s.Name == name || len(s.Name) > len(name) && s.Name[:len(name)+1] == name+"." {
			found = append(found, s)
		}
	}
	return found
}

// each runs steps one after another.
func each(steps ...func(context.Context, *Run) error) func(context.Context, *Run) error {
	return func(ctx context.Context, r *Run) error {
		for _, step := range steps {
			if err := step(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
}
