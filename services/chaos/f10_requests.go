package chaos

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// requestFaults is F10 and F11: what clients do wrong.
func requestFaults() []Scenario {
	return []Scenario{
		{Name: "F10", Fault: "each request twice or with a rival body under its id: at once, within the duplicate window, after it, after a restart of NATS", Load: Load{Rate: 30, Parallel: 128, Make: repeatedMail},
			Rules: Rules{NoDuplicates: true, NoUnknown: true}, Do: func(ctx context.Context, r *Run) error {
				for range 2 {
					if err := r.Acknowledged(ctx, 100); err != nil {
						return err
					}
					r.KillNATS()
					if err := r.StartNATS(ctx); err != nil {
						return err
					}
				}
				return r.Acknowledged(ctx, 100)
			}},
		{Name: "F11", Fault: "requests that cannot be read, beside good ones; the sender is killed twice among them", Load: Load{Rate: 40, Make: poisonMail}, Do: func(ctx context.Context, r *Run) error {
			for range 2 {
				if err := r.Acknowledged(ctx, 100); err != nil {
					return err
				}
				r.Service(oneSender).Kill()
				if err := r.Service(oneSender).Start(); err != nil {
					return err
				}
			}
			return r.Acknowledged(ctx, 100)
		}},
	}
}

// repeatedMail has no request that is published once.
func repeatedMail(step int, r *rand.Rand) []Request {
	id := fmt.Sprintf("d-%06d", step)
	first := Mail("acme", id, nil, "first-"+id+"@example.org").wants(sent())
	again := first
	if r.IntN(3) == 0 {
		again = Mail("acme", id, nil, "second-"+id+"@example.org").wants(sent())
	}
	again.InHeader = r.IntN(2) == 0
	again.After = []time.Duration{0, 20 * time.Millisecond, 90 * time.Millisecond, 150 * time.Millisecond, 2 * time.Second}[r.IntN(5)]
	other := Mail("bolt", id, nil, "other-"+id+"@example.org").wants(sent()) // another tenant's equal id is another request
	return []Request{first, again, other}
}

// poisonMail has one bad request in two.
func poisonMail(step int, r *rand.Rand) []Request {
	id := fmt.Sprintf("p-%06d", step)
	good := Mail("acme", id, nil, "to-"+id+"@example.org").wants(sent())
	bad := Request{Tenant: "acme", ID: id + "-bad", Poison: true}
	switch r.IntN(8) {
	case 0:
		bad.Body = fmt.Appendf(nil, `not JSON at all %s`, id)
	case 1:
		bad.Body = fmt.Appendf(nil, `{"version":7,"id":%q}`, id)
	case 2:
		bad.Body = fmt.Appendf(nil, `{"version":1,"id":%q,"to":["caf`+"\xe9"+`@example.org"],"subject":"s","text":"t"}`, id)
	case 3:
		bad.Body = append(fmt.Appendf(nil, `{"version":1,"id":%q,"to":`, id), bytes.Repeat([]byte("["), 20_000)...)
	case 4:
		bad.Body = append(fmt.Appendf(nil, `{"version":1,"id":%q,"to":["x@example.org"],"subject":"s","text":"`, id), bytes.Repeat([]byte("x"), 200_000)...)
	case 5:
		bad.Body = fmt.Appendf(nil, `{"version":1,"to":["x@example.org"],"subject":"no id, number %s","text":"t"}`, id)
	case 6:
		bad.Body = fmt.Appendf(nil, `{"version":1,"id":%q,"id":%q,"to":["x@example.org"],"nonsense":%q}`, id, id, id)
	default: // readable, and nothing that a mail could be made of
		r := Mail("acme", id+"-empty", func(m *delivery.Request) { m.Subject = "" }, "no address "+id)
		r.Want = []delivery.State{delivery.Failed}
		return []Request{good, r}
	}
	return []Request{good, bad}
}
