package main

import (
	"strings"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

func TestAnOperatorProtects(t *testing.T) {
	t.Parallel()
	o := open(t, nil)
	who := []string{"--by", "ann", "--why", "they mend their server"}
	act := func(want int, args ...string) string { t.Helper(); return o.say(want, append(args, who...)...) }
	send := func(tenant, id string) {
		o.say(0, "send", "--tenant", tenant, "--id", id, "--to", id+"@example.org", "--subject", "s", "--text", "t")
	}
	sent := func(tenant, id string) { t.Helper(); o.until(": sent", "status", "--tenant", tenant, id) }
	key := "mail$" + o.sink.Addr()

	// Lanes and breakers.
	has(t, o.until(key, "lanes"), "LANE", "STATE", "clear")
	has(t, o.say(0, "lanes", "--trouble", key), "No lane is in trouble.")
	has(t, o.say(0, "breaker", "list", "--instances"), "No sender has counted a failure")
	has(t, o.say(1, "lanes", "mail$nowhere:25"), "no such lane", "`posthouse lanes` shows them")
	has(t, act(1, "breaker", "open", "mail$nowhere:25", "--for", "30m"), "no such lane")
	has(t, act(2, "breaker", "open", key), "--for")
	has(t, o.say(1, "breaker", "open", key, "--for", "30m", "--by", "ann"), "why is empty")
	has(t, act(0, "breaker", "open", key, "--for", "30m"), "is open, until", "posthouse breaker reset '"+key+"'")
	send("acme", "late")
	has(t, o.until("Gate: breaker", "explain", "--tenant", "acme", "late"), "suspended by circuit breaker", "they mend their server", "Until:")
	has(t, o.say(0, "breaker"), "OPEN SINCE", key, "open, by hand", "29m", "they mend their server")
	has(t, o.say(0, "lanes", "--trouble"), key, "open, by hand", "yes", "they mend their server, until")
	var lanes []delivery.LaneStatus
	if o.decode(&lanes, "lanes", key); len(lanes) != 1 || lanes[0].Breaker != "open" || !lanes[0].Forced || lanes[0].Remaining < 1700 {
		t.Errorf("%+v", lanes)
	}
	has(t, act(0, "breaker", "reset", key), "is closed", "sent now")
	sent("acme", "late")
	var one delivery.LaneStatus
	if o.decode(&one, append([]string{"breaker", "reset", key}, who...)...); one.Key != key || one.Breaker != "closed" {
		t.Errorf("%+v", one)
	}

	// What a sender has counted.
	o.sink.Away(true)
	send("acme", "unlucky")
	has(t, o.until("retry", "status", "--tenant", "acme", "unlucky"))
	o.sink.Away(false)
	has(t, o.say(0, "breaker", "list", "--instances"), "INSTANCE", "FOR ALL", key, "closed  closed   1")
	var counted []delivery.InstanceBreaker
	if o.decode(&counted, "breaker", "list", "--instances"); len(counted) != 1 || counted[0].Key != key || counted[0].Failures != 1 || counted[0].Instance == "" {
		t.Errorf("%+v", counted)
	}
	act(0, "cancel", "--tenant", "acme", "unlucky")
	has(t, act(0, "breaker", "reset", key), "is closed")
	has(t, o.say(0, "breaker", "list", "--instances"), "No sender has counted a failure")

	// Pauses.
	has(t, o.say(0, "pauses"), "No tenant and no channel is paused", "posthouse lanes --trouble")
	has(t, act(2, "pause", "world", "it"), "lane", "tenant", "channel")
	has(t, act(1, "pause", "tenant", "a.b"), "is no tenant")
	has(t, act(0, "pause", "tenant", "acme", "--for", "1h"), "paused for 1h0m0s", "posthouse resume tenant 'acme'")
	send("acme", "kept")
	has(t, o.until("Gate: paused", "explain", "--tenant", "acme", "kept"), "the tenant is paused: they mend their server", "Released by: the tenant is resumed")
	has(t, o.say(0, "pauses"), "SCOPE", "tenant", "acme", "ann", "they mend their server")
	var pauses []delivery.Pause
	if o.decode(&pauses, "pauses"); len(pauses) != 1 || pauses[0].Until == nil || pauses[0].Name != "acme" {
		t.Errorf("%+v", pauses)
	}
	has(t, act(0, "resume", "tenant", "acme"), "tenant acme is resumed")
	sent("acme", "kept")
	has(t, act(0, "resume", "tenant", "acme"), "was not paused", "posthouse pauses")
	has(t, act(0, "pause", "lane", key), "until it is resumed")
	has(t, o.say(0, "lanes", "--trouble"), "paused", "they mend their server")
	has(t, act(0, "breaker", "reset", key), "but paused", "posthouse resume lane")
	has(t, act(0, "resume", "lane", key), "is resumed")

	// Quotas.
	has(t, o.say(0, "quota"), "No quota is set", "QUOTA_MAIL_MONTHLY_DEFAULT")
	has(t, act(2, "quota", "set", "globex", "--channel", "mail"), "--monthly")
	has(t, act(2, "quota", "set", "globex", "--channel", "fax", "--monthly", "1"), "mail")
	has(t, act(1, "quota", "set", "globex", "--channel", "mail", "--monthly", "1", "--zone", "Mars/Olympus"), "no time zone")
	has(t, o.say(0, "quota", "usage", "globex"), "Nothing was sent that this asks for.")
	has(t, act(0, "quota", "set", "globex", "--channel", "mail", "--monthly", "1", "--hold", "--zone", "Europe/Vienna"),
		"globex may send 1 mail a month (Europe/Vienna)", "waits", "posthouse quota usage globex")
	send("globex", "first")
	sent("globex", "first")
	send("globex", "second")
	has(t, o.until("Gate: quota", "explain", "--tenant", "globex", "second"), "posthouse quota set", "Until:")
	has(t, o.say(0, "quota", "list"), "BUCKET", "globex", "waits", "Europe/Vienna")
	has(t, o.say(0, "quota", "usage"), "globex", "100", "acme", "no limit")
	var usage []delivery.QuotaUsage
	if o.decode(&usage, "quota", "usage", "globex"); len(usage) != 1 || usage[0].Used != 1 || usage[0].Ceiling == nil || *usage[0].Ceiling != 1 || !usage[0].Hold {
		t.Fatalf("%+v", usage)
	}
	if o.decode(&usage, "quota", "usage", "globex", "--month", "2001-01"); len(usage) != 0 {
		t.Errorf("%+v", usage)
	}
	has(t, o.say(1, "quota", "usage", "--month", "May"), "not of the form 2026-11")
	has(t, act(0, "quota", "remove", "globex", "--channel", "mail"), "no quota of its own", "tries again now")
	sent("globex", "second")
	if out := o.say(0, "quota", "list"); strings.Contains(out, "globex") {
		t.Errorf("it was removed:\n%s", out)
	}
	has(t, o.say(0, "audit"), "breaker.open", "breaker.reset", "paused", "resumed", "quota.set", "quota.remove", "they mend their server")
	if n := o.sink.Count(); n != 4 {
		t.Errorf("%d mails arrived, want 4", n)
	}
}
