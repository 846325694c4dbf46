package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/services/house"
)

func TestMain(m *testing.M) { os.Exit(localtest.Main(m)) }

// office is a running house and a command line that talks to it.
type office struct {
	t    *testing.T
	nats string
	sink *smtpsink.Sink
}

func open(t *testing.T, environ map[string]string) *office {
	t.Helper()
	sink, err := smtpsink.Start(smtpsink.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sink.Close() })
	all := sinkSettings(sink)
	maps.Copy(all, map[string]string{"DATABASE_URL": localtest.Postgres(t), "NATS_URL": localtest.NATS(t), "HEALTH_LISTEN": "", "DATABASE_MAX_CONNS": "6",
		"SENDER_POLL": "50ms", "SENDER_IDLE_POLL": "200ms", "STREAMS_MAX_BYTES": "268435456"})
	maps.Copy(all, environ)
	ctx, stop := context.WithCancel(context.Background())
	ready := make(chan struct{})
	var once sync.Once
	var running sync.WaitGroup
	running.Go(func() {
		defer once.Do(func() { close(ready) })
		if err := house.Run(ctx, house.Options{Dir: t.TempDir(), Environ: all, LogTo: localtestLog{t}, Log: zerolog.Nop()}, func(house.House) { once.Do(func() { close(ready) }) }); err != nil {
			t.Errorf("house: %v", err)
		}
	})
	t.Cleanup(func() { stop(); running.Wait() })
	<-ready
	o := &office{t: t, nats: all["NATS_URL"], sink: sink}
	localtest.Eventually(t, time.Minute, func() error {
		if _, errs, code := o.try("jobs"); code != 0 {
			return fmt.Errorf("%s", errs)
		}
		_, errs, code := o.try("dlq", "list")
		if code != 0 {
			return fmt.Errorf("%s", errs)
		}
		return nil
	})
	return o
}

// localtestLog drops the log of the services.
type localtestLog struct{ *testing.T }

func (localtestLog) Write(b []byte) (int, error) { return len(b), nil }

func (o *office) try(args ...string) (out, errs string, code int) {
	var stdout, stderr bytes.Buffer
	code = run(append(args, "--nats-url", o.nats), &terminal{ctx: o.t.Context(), out: &stdout, err: &stderr, in: strings.NewReader("")})
	return stdout.String(), stderr.String(), code
}

// say runs a command that must end with the given code.
func (o *office) say(want int, args ...string) string {
	o.t.Helper()
	out, errs, code := o.try(args...)
	if code != want {
		o.t.Fatalf("posthouse %v: exit %d, want %d\n%s%s", args, code, want, out, errs)
	}
	return out + errs
}

// until repeats a command until it prints what is wanted.
func (o *office) until(want string, args ...string) string {
	o.t.Helper()
	var all string
	localtest.Eventually(o.t, time.Minute, func() error {
		out, errs, code := o.try(args...)
		if all = out; code != 0 || !strings.Contains(out, want) {
			return fmt.Errorf("posthouse %v: exit %d\n%s%s", args, code, out, errs)
		}
		return nil
	})
	return all
}

func (o *office) decode(into any, args ...string) {
	o.t.Helper()
	out, errs, code := o.try(append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		o.t.Fatalf("posthouse %v: exit %d, %v\n%s%s", args, code, err, out, errs)
	}
}

func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in\n%s", p, text)
		}
	}
}

func TestAnOperatorActs(t *testing.T) {
	t.Parallel()
	o := open(t, nil)
	send := func(id, to string, more ...string) {
		o.say(0, append([]string{"send", "--tenant", "acme", "--id", id, "--to", to, "--subject", "s", "--text", "t"}, more...)...)
	}
	send("good", "you@example.org")
	for i := range 5 {
		send(fmt.Sprint("bad-", i), fmt.Sprintf("refuse+%d@example.org", i))
	}
	o.until("sent", "status", "--tenant", "acme", "good")
	for i := range 5 {
		o.until("failed", "status", "--tenant", "acme", fmt.Sprint("bad-", i))
	}
	who := []string{"--by", "ann", "--why", "the mailbox is back"}
	act := func(want int, args ...string) string { t.Helper(); return o.say(want, append(args, who...)...) }

	// By id.
	has(t, act(0, "retry", "--tenant", "acme", "bad-0"), "queued", "due at once")
	o.until("version 4: failed", "status", "--tenant", "acme", "bad-0")
	has(t, act(1, "retry", "--tenant", "acme", "good", "bad-0"), "sent", "queued", "left alone")
	has(t, act(1, "cancel", "--tenant", "acme", "good"), "the other side has accepted it")
	has(t, act(1, "settle", "--as", "sent", "--tenant", "acme", "good"), "not_held")
	has(t, act(1, "retry", "bad-0"), "--tenant")
	has(t, act(1, "retry"), "say which")
	has(t, o.say(1, "retry", "--tenant", "acme", "bad-0", "--by", "ann"), "why is empty")
	o.until("version 6: failed", "status", "--tenant", "acme", "bad-0")

	// By filter: counted first, then a job.
	o.until(`"count": 5`, "retry", "--tenant", "acme", "--code", "550", "--dry-run", "--json")
	has(t, o.say(0, "retry", "--code", "550", "--request-prefix", "bad-3", "--dry-run"), "1 found")
	var job delivery.Job
	o.decode(&job, append([]string{"retry", "--tenant", "acme", "--state", "failed", "--rate", "50"}, who...)...)
	if job.Total.Count != 5 || job.By != "ann" {
		t.Fatalf("%+v", job)
	}
	o.until("done", "jobs", "show", job.ID.String())
	o.decode(&job, "jobs", "show", job.ID.String(), "--results", "10")
	if job.Done != 5 || len(job.Results) != 5 {
		t.Errorf("%+v", job)
	}
	has(t, act(1, "jobs", "pause", job.ID.String()), "is done and cannot become paused")
	has(t, o.say(0, "jobs"), job.ID.String(), "the mailbox is back")

	// Letters and the audit.
	for i := range 5 {
		o.until("failed", "status", "--tenant", "acme", fmt.Sprint("bad-", i))
	}
	var letters []delivery.Letter
	localtest.Eventually(t, time.Minute, func() error {
		if o.decode(&letters, "dlq", "list", "--open"); len(letters) < 12 {
			return fmt.Errorf("%d letters", len(letters))
		}
		return nil
	})
	if len(letters) != 12 { // each death is a letter: five first ones, two of bad-0 by hand, five of the job
		t.Errorf("%d letters", len(letters))
	}
	has(t, o.say(0, "dlq", "resolve", letters[0].EventID, "--remark", "called them", "--by", "ann"), letters[0].EventID, "resolved")
	has(t, o.say(1, "dlq", "discard", letters[0].EventID, "--remark", "x", "--by", "ann"), "resolved")
	has(t, o.say(0, "dlq", "discard", letters[1].EventID, "--remark", "x", "--by", "bob", "--json"), `"changed": true`)
	has(t, o.say(0, "audit"), "triage", "job.start", "retry of 5", "called them", "AT")
	var entries []delivery.AuditEntry
	o.decode(&entries, "audit", "list", "--target", job.Results[0].ID.String())
	if len(entries) == 0 || entries[len(entries)-1].Why != "the mailbox is back" {
		t.Errorf("%+v", entries)
	}
	if n := o.sink.Count(); n != 1 {
		t.Errorf("%d mails arrived", n)
	}
}

func TestAnOperatorDecidesOnHeldOnes(t *testing.T) {
	t.Parallel()
	o := open(t, map[string]string{"RETRY_MAIL_ON_UNKNOWN": "hold"})
	for _, id := range []string{"a", "b", "c"} {
		o.say(0, "send", "--tenant", "acme", "--id", id, "--to", "drop+"+id+"@example.org", "--subject", "s", "--text", "t")
	}
	for _, id := range []string{"a", "b", "c"} {
		o.until("held", "explain", "--tenant", "acme", id)
	}
	who := []string{"--by", "ann", "--why", "asked them"}
	has(t, o.say(0, append([]string{"settle", "--tenant", "acme", "a", "--as", "sent"}, who...)...), "settled")
	has(t, o.say(0, append([]string{"settle", "--tenant", "acme", "b", "--as", "failed"}, who...)...), "settled")
	has(t, o.say(0, append([]string{"cancel", "--state", "held", "--rate", "10"}, who...)...), "1 found", "started")
	for id, want := range map[string]string{"a": "sent", "b": "failed", "c": "cancelled"} {
		o.until(": "+want, "status", "--tenant", "acme", id)
	}
}
