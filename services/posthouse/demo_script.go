package main

import (
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// demoTenant sends all of the demo's requests.
const demoTenant = "acme"

// scene is one request of the demo and what it promises. The sink's behaviour is
// in the local part of the recipient.
type scene struct {
	id    string // the request's id; empty: in the body only
	title string
	body  string // as any NATS client would write it

	state    delivery.State
	attempts int
	poison   string // code of the poison letter instead of a delivery
	repeat   bool   // the same request as an earlier one: no delivery of its own
}

// demoSettings compress the seed's schedule (30 s, 1, 2, 4, 8 min) so that the
// whole is over in seconds.
func demoSettings() map[string]string {
	return map[string]string{
		"RETRY_MAIL_INITIAL_BACKOFF":   "250ms",
		"RETRY_MAIL_MAX_RETRIES":       "2",
		"MAIL_TRANSPORT_FINAL_TIMEOUT": "500ms",
		"MAIL_SEND_CONCURRENCY":        "8",
		"WATCHDOG_SWEEP":               "2s",
		"HEALTH_LISTEN":                "",
	}
}

func demoScenes(now time.Time) []scene {
	plain := func(id, to, subject string) string {
		return fmt.Sprintf(`{"version":1,"id":%q,"to":[%q],"subject":%q,"text":"Hello from the demo."}`, id, to, subject)
	}
	at := func(d time.Duration) string { return now.Add(d).UTC().Format(time.RFC3339Nano) }
	return []scene{
		{id: "welcome", title: "accepted at once", body: plain("welcome", "ada@example.org", "Welcome"), state: delivery.Sent, attempts: 1},
		{id: "code", title: "a login code, served first", state: delivery.Sent, attempts: 1,
			body: `{"version":1,"id":"code","class":"otp","to":["Grace <grace@example.org>"],"subject":"Your code","text":"123456","expires_at":"` + at(10*time.Minute) + `"}`},
		{id: "newsletter", title: "bulk, HTML with text, custom fields", state: delivery.Sent, attempts: 1,
			body: `{"version":1,"id":"newsletter","class":"bulk","to":["linus@example.org"],"cc":["ken@example.org"],"subject":"News","text":"News","html":"<p>News</p>","custom":{"campaign":"autumn"}}`},
		{id: "welcome", title: "the first one published again", body: plain("welcome", "ada@example.org", "Welcome"), repeat: true},
		{id: "busy-once", title: "deferred once, then accepted", body: plain("busy-once", "defer-1@example.org", "Try again"), state: delivery.Sent, attempts: 2},
		{id: "busy-twice", title: "deferred twice, then accepted", body: plain("busy-twice", "defer-2@example.org", "Try again"), state: delivery.Sent, attempts: 3},
		{id: "nobody", title: "no such mailbox: final at once", body: plain("nobody", "refuse@example.org", "Anybody there?"), state: delivery.Failed, attempts: 1},
		{id: "half", title: "one of two recipients refused", state: delivery.Sent, attempts: 1,
			body: `{"version":1,"id":"half","to":["barbara@example.org","refuse@example.org"],"subject":"To both","text":"Hello"}`},
		{id: "never", title: "deferred for ever: dead letter", body: plain("never", "defer-99@example.org", "Still trying"), state: delivery.Dead, attempts: 3},
		{id: "stalls", title: "server stalls after the last byte", body: plain("stalls", "stall@example.org", "Did it arrive?"), state: delivery.Dead, attempts: 3},
		{id: "later", title: "not before a given time", state: delivery.Sent, attempts: 1,
			body: `{"version":1,"id":"later","to":["edsger@example.org"],"subject":"Later","text":"Hello","send_at":"` + at(1500*time.Millisecond) + `"}`},
		{id: "too-late", title: "expires while it waits", state: delivery.Expired, attempts: -1,
			body: `{"version":1,"id":"too-late","to":["defer-99@example.org"],"subject":"Quick","text":"Hello","expires_at":"` + at(400*time.Millisecond) + `"}`},
		{id: "no-address", title: "cannot be prepared", body: plain("no-address", "not an address", "Oops"), state: delivery.Failed, attempts: 0},
		{title: "not JSON: poison", body: `{"version":1,"to":["x@example.org"`, poison: "MALFORMED"},
		{id: "welcome", title: "same id, other content: poison", body: plain("welcome", "eve@example.org", "Changed"), poison: "CONFLICT"},
	}
}
