package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// mailFaults is F16: a mail server that answers late, wrongly or not at all.
func mailFaults() []Scenario {
	config := func(policy string) Config {
		return Config{SinkDelay: 0, Env: map[string]string{
			"MAIL_TRANSPORT_FINAL_TIMEOUT": "1s", "RETRY_MAIL_MAX_RETRIES": "3", "RETRY_MAIL_ON_UNKNOWN": policy, "MAIL_SEND_CONCURRENCY": "32", "MAIL_SERVER_MAX_CONNECTIONS": "32",
			// A server that fails so often would be left alone most of the time: that is F18.
			"CIRCUIT_BREAKER_FAILURE_THRESHOLD": "100000"}}
	}
	count := func(ctx context.Context, r *Run) error { return r.Acknowledged(ctx, 600) }
	killed := func(ctx context.Context, r *Run) error {
		for range 3 {
			if err := r.Acknowledged(ctx, 80); err != nil {
				return err
			}
			r.KillSink()
			if err := r.StartSink(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	return []Scenario{
		{Name: "F16.retry", Fault: "a mail server that defers, refuses, stalls, hangs up, takes and does not say so; unknown outcomes are tried again", Load: Load{Rate: 60, Make: scriptedMail("retry")}, Config: config("retry"), Do: count,
			Note: "replies that come 11 minutes late are 1 s late, by the time-out; greylisting that names 300 s is waited for and so not in it"},
		{Name: "F16.hold", Fault: "the same; unknown outcomes are held for a person", Load: Load{Rate: 60, Make: scriptedMail("hold")}, Config: config("hold"), Rules: Rules{OnUnknown: "hold", NoDuplicates: true}, Do: count},
		{Name: "F16.killed", Fault: "kill -9 of the mail server, three times", Load: Load{Rate: 40, Make: mixedMail}, Config: Config{SinkDelay: 0}, Do: killed},
	}
}

// scriptedMail asks the mail server for each of its answers in turn.
func scriptedMail(policy string) Maker {
	lost := []delivery.State{delivery.Dead}
	if policy == "hold" {
		lost = nil // it stays held, which is not final
	}
	dead, failed := []delivery.State{delivery.Dead}, []delivery.State{delivery.Failed}
	scripts := []struct {
		local string
		want  []delivery.State
	}{
		{"plain", sent()}, {"defer-2", sent()}, {"slow-200ms", sent()}, {"refuse", failed}, {"spam", failed}, {"big", failed},
		{"full", dead}, {"throttle", dead}, {"busy", dead}, {"stall", lost}, {"stall-accept", lost}, {"drop", lost}, {"drop-accept", lost},
	}
	return func(step int, _ *rand.Rand) []Request {
		s := scripts[step%len(scripts)]
		id := fmt.Sprintf("x-%06d", step)
		return []Request{Mail("acme", id, nil, s.local+"+"+id+"@example.org").wants(s.want)}
	}
}
