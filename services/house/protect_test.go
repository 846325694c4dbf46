package house_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/services/house/housetest"
	"github.com/posthouse-io/posthouse/streams"
)

// sleepy is a sender that looks at its queue once a minute: what goes on sooner was
// woken.
var sleepy = map[string]string{"SENDER_POLL": "1m", "SENDER_IDLE_POLL": "1m"}

// woken is how soon it must go on then: far below that minute.
const woken = 20 * time.Second

// guarded is a site with one sleepy sender, and the key of its lane.
func guarded(t *testing.T, extra map[string]string) (*housetest.Site, *client.Client, string) {
	t.Helper()
	s := housetest.New(t, housetest.Options{Env: sleepy})
	s.Start(housetest.Sender, extra)
	c := operatorOf(t, s)
	var key string
	localtest.Eventually(t, 30*time.Second, func() error {
		lanes, err := c.Lanes(t.Context(), delivery.LaneFilter{})
		for _, l := range lanes {
			if strings.HasPrefix(l.Key, "mail$") {
				key = l.Key
			}
		}
		if err == nil && key == "" {
			err = errors.New("there is no lane of the mail server yet")
		}
		return err
	})
	return s, c, key
}

// heldBy waits until a gate holds a request of acme, and tells what explain says.
func heldBy(t *testing.T, c *client.Client, id, gate string, why ...string) delivery.Gate {
	t.Helper()
	var got delivery.Gate
	localtest.Eventually(t, woken, func() error {
		s, err := c.Status(t.Context(), id, "acme")
		if err == nil {
			if got = s.Gate; got.Name != gate {
				err = fmt.Errorf("%s is held by %+v, want %s", id, got, gate)
			}
		}
		return err
	})
	for _, part := range why {
		if !strings.Contains(got.Why+"; "+got.Release, part) {
			t.Errorf("%s: %q is missing in %+v", id, part, got)
		}
	}
	return got
}

// arrives waits for a request of a tenant to be sent, for as long as only one that
// was woken needs.
func arrives(t *testing.T, c *client.Client, tenant, id string) {
	t.Helper()
	localtest.Eventually(t, woken, func() error {
		s, err := c.Status(t.Context(), id, tenant)
		if err == nil && s.State != delivery.Sent {
			err = fmt.Errorf("%s is %s, held by %+v", id, s.State, s.Gate)
		}
		return err
	})
}

// told waits for an event on a subject and reads its body into v.
func told(t *testing.T, s *housetest.Site, subject string, v any) {
	t.Helper()
	localtest.Eventually(t, 30*time.Second, func() error {
		for _, m := range s.Stream(streams.Events) {
			if m.Subject == subject {
				return json.Unmarshal(m.Data, v)
			}
		}
		return fmt.Errorf("no event on %s", subject)
	})
}

func TestAPauseKeepsAndAResumeReleases(t *testing.T) {
	t.Parallel()
	s, c, key := guarded(t, nil)
	for _, p := range []struct{ scope, name, tenant, channel string }{
		{"tenant", "acme", "acme", streams.None}, {"channel", "mail", streams.None, "mail"}, {"lane", key, streams.None, "mail"},
	} {
		kept, other := fmt.Sprint("kept-", p.scope), fmt.Sprint("other-", p.scope)
		command := delivery.PauseCommand{Scope: p.scope, Name: p.name, Warrant: delivery.Warrant{By: "ann", Why: "their audit " + p.scope}}
		paused := command
		paused.For = delivery.Duration(time.Hour)
		if err := c.Pause(t.Context(), paused); err != nil {
			t.Fatal(err)
		}
		before := s.Sink.Count()
		s.Publish(housetest.Mail("acme", kept, kept+"@example.org"))
		gate := heldBy(t, c, kept, "paused", p.scope, "their audit", "resumed")
		if gate.Until == nil || time.Until(*gate.Until) < 50*time.Minute {
			t.Errorf("%s: paused until %v", p.scope, gate.Until)
		}
		if p.scope == "tenant" {
			s.Publish(housetest.Mail("globex", other, other+"@example.org"))
			arrives(t, c, "globex", other)
			before++
		}
		if p.scope != "lane" {
			list, err := c.Pauses(t.Context())
			if err != nil || len(list) != 1 || list[0].Name != p.name || list[0].By != "ann" {
				t.Errorf("%+v %v", list, err)
			}
		} else if list, err := c.Lanes(t.Context(), delivery.LaneFilter{Trouble: true}); err != nil || len(list) != 1 || !list[0].Paused || list[0].PausedWhy != command.Why {
			t.Errorf("%+v %v", list, err)
		}
		heldBy(t, c, kept, "paused")
		if n := s.Sink.Count(); n != before {
			t.Errorf("%s: %d mails arrived, want %d", p.scope, n, before)
		}
		done, err := c.Resume(t.Context(), command)
		if err != nil || !done {
			t.Fatalf("%s: %t %v", p.scope, done, err)
		}
		arrives(t, c, "acme", kept)
		if done, err = c.Resume(t.Context(), command); err != nil || done {
			t.Errorf("%s was resumed twice: %t %v", p.scope, done, err)
		}
		for _, state := range []delivery.LaneState{delivery.LanePaused, delivery.LaneResumed} {
			var e delivery.LaneEvent
			told(t, s, streams.Event(streams.KindLane, string(state), p.channel, p.tenant), &e)
		}
	}
	var e delivery.LaneEvent
	told(t, s, streams.Event(streams.KindLane, "paused", streams.None, "acme"), &e)
	if e.By != "ann" || e.Cause != "their audit tenant" || e.Until == nil || e.Text == "" {
		t.Errorf("%+v", e)
	}
	s.Settled(4, 30*time.Second)
	s.Audit().Check(t)
}

func TestABreakerThatIsForcedOpenStopsItsLane(t *testing.T) {
	t.Parallel()
	s, c, key := guarded(t, nil)
	s.Publish(housetest.Mail("acme", "before", "before@example.org"))
	arrives(t, c, "acme", "before")
	window := delivery.Warrant{By: "ann", Why: "maintenance until noon"}
	l, err := c.OpenBreaker(t.Context(), delivery.LaneCommand{Key: key, For: delivery.Duration(time.Hour), Warrant: window})
	if err != nil || l.Breaker != "open" || !l.Forced || l.Remaining < 3500 || l.Cause != window.Why || !strings.Contains(l.Message, "OPEN") || !strings.Contains(l.Message, "opened by an operator: "+window.Why) {
		t.Fatalf("%+v %v", l, err)
	}
	s.Publish(housetest.Mail("acme", "during", "during@example.org"))
	gate := heldBy(t, c, "during", "breaker", "suspended by circuit breaker", "opened by an operator: "+window.Why, "breaker reset")
	if strings.Contains(gate.Why, "last failure") {
		t.Errorf("nothing has failed: %s", gate.Why)
	}
	if n := s.Sink.Count(); n != 1 {
		t.Errorf("%d mails arrived, want 1", n)
	}
	if l, err = c.ResetBreaker(t.Context(), delivery.LaneCommand{Key: key, Warrant: operator}); err != nil || l.Breaker != "closed" || l.Forced || l.Message != "" {
		t.Errorf("%+v %v", l, err)
	}
	arrives(t, c, "acme", "during")
	s.Publish(housetest.Mail("acme", "after", "after@example.org"))
	arrives(t, c, "acme", "after")
	for state, cause := range map[delivery.LaneState]string{delivery.LaneOpen: window.Why, delivery.LaneClosed: operator.Why} {
		var e delivery.LaneEvent
		told(t, s, streams.Event(streams.KindLane, string(state), "mail", ""), &e)
		if e.Lane != key || e.By != "ann" || e.Cause != cause || (e.Until != nil) != (state == delivery.LaneOpen) {
			t.Errorf("%s: %+v", state, e)
		}
	}
	s.Settled(3, 30*time.Second)
	s.Audit().Check(t)
}

// What each sender has counted is shown, and a reset reaches all of them.
func TestAResetReachesEverySender(t *testing.T) {
	t.Parallel()
	s := housetest.New(t, housetest.Options{Env: map[string]string{"MAIL_SEND_CONCURRENCY": "1", "RETRY_MAIL_MAX_RETRIES": "1"}})
	s.Sink.Away(true)
	for range 2 {
		s.Start(housetest.Sender, nil)
	}
	c := operatorOf(t, s)
	var counted []delivery.InstanceBreaker
	published := 0
	localtest.Eventually(t, time.Minute, func() error {
		s.Publish(housetest.Mails(fmt.Sprint("t", published), 4)...)
		published += 4
		var err error
		if counted, err = c.InstanceBreakers(t.Context()); err == nil && len(counted) != 2 {
			err = fmt.Errorf("two senders have failed, shown are %+v", counted)
		}
		return err
	})
	for _, b := range counted {
		if b.Failures == 0 || b.State != "closed" || b.Row != "closed" || b.Unsaved || b.Key != counted[0].Key {
			t.Errorf("%+v", b)
		}
	}
	if counted[0].Instance == counted[1].Instance {
		t.Errorf("one sender twice: %+v", counted)
	}
	s.Settled(published, time.Minute) // all dead: from now on nobody counts
	if _, err := c.ResetBreaker(t.Context(), delivery.LaneCommand{Key: counted[0].Key, Warrant: operator}); err != nil {
		t.Fatal(err)
	}
	localtest.Eventually(t, woken, func() error {
		left, err := c.InstanceBreakers(t.Context())
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("after the reset: %+v", left)
		}
		return err
	})
}

func TestAQuotaThatHoldsReleasesWhenItIsRaised(t *testing.T) {
	t.Parallel()
	s, c, _ := guarded(t, nil)
	set := func(n int64) {
		t.Helper()
		q, err := c.SetQuota(t.Context(), delivery.QuotaCommand{Bucket: "acme", Channel: "mail", Monthly: &n, Hold: true, Warrant: operator})
		if err != nil || q == nil || q.Monthly == nil || *q.Monthly != n || !q.Hold {
			t.Fatalf("%+v %v", q, err)
		}
	}
	set(1)
	s.Publish(housetest.Mail("acme", "first", "first@example.org"))
	arrives(t, c, "acme", "first")
	s.Publish(housetest.Mail("acme", "second", "second@example.org"), housetest.Mail("globex", "theirs", "theirs@example.org"))
	arrives(t, c, "globex", "theirs")
	gate := heldBy(t, c, "second", "quota", "quota", "posthouse quota set")
	if gate.Until == nil || gate.Until.Before(time.Now()) {
		t.Errorf("it waits until %v", gate.Until)
	}
	if n := s.Sink.Count(); n != 2 {
		t.Errorf("%d mails arrived, want 2", n)
	}
	set(5)
	arrives(t, c, "acme", "second")
	usage, err := c.QuotaUsage(t.Context(), delivery.QuotaFilter{Bucket: "acme"})
	if err != nil || len(usage) != 1 || usage[0].Used != 2 || usage[0].Ceiling == nil || *usage[0].Ceiling != 5 {
		t.Errorf("%+v %v", usage, err)
	}
	var e struct {
		State, Bucket  string
		Used, Ceiling  int64
		Percent        int
		Kind, Tenant   string
		Channel, Month string
	}
	told(t, s, streams.Event(streams.KindQuota, "exhausted", "mail", "acme"), &e)
	if e.Bucket != "acme" || e.Used != 1 || e.Ceiling != 1 || e.Percent != 100 {
		t.Errorf("%+v", e)
	}
	q, err := c.SetQuota(t.Context(), delivery.QuotaCommand{Bucket: "acme", Channel: "mail", Remove: true, Warrant: operator})
	if err != nil || q != nil {
		t.Errorf("%+v %v", q, err)
	}
	s.Settled(3, 30*time.Second)
	s.Audit().Check(t)
}

func TestProtectionRefusesAndSaysWhatToDo(t *testing.T) {
	t.Parallel()
	_, c, key := guarded(t, nil)
	ctx, minus := t.Context(), int64(-1)
	refused := func(_ any, err error) error { return err }
	open := func(key string, d time.Duration, w delivery.Warrant) error {
		return refused(c.OpenBreaker(ctx, delivery.LaneCommand{Key: key, For: delivery.Duration(d), Warrant: w}))
	}
	pause := func(scope, name string) error {
		return c.Pause(ctx, delivery.PauseCommand{Scope: scope, Name: name, Warrant: operator})
	}
	quota := func(q delivery.QuotaCommand) error { return refused(c.SetQuota(ctx, q)) }
	for name, one := range map[string]struct {
		err        error
		code, says string
	}{
		"open nothing":     {open("mail$nowhere:25", time.Hour, operator), "404", "posthouse lanes"},
		"open for ever":    {open(key, 0, operator), "400", "such as 30m"},
		"open too long":    {open(key, 1000*time.Hour, operator), "400", "pause the lane"},
		"open by nobody":   {open(key, time.Hour, delivery.Warrant{Why: "x"}), "400", "by is empty"},
		"open NUL":         {open("mail$\x00", time.Hour, operator), "400", "control characters"},
		"reset nothing":    {refused(c.ResetBreaker(ctx, delivery.LaneCommand{Key: "nowhere", Warrant: operator})), "404", "posthouse lanes"},
		"reset unasked":    {refused(c.ResetBreaker(ctx, delivery.LaneCommand{Key: key})), "400", "by is empty"},
		"list nothing":     {refused(c.Lanes(ctx, delivery.LaneFilter{Key: "nowhere", Trouble: true})), "404", "posthouse lanes"},
		"pause what":       {pause("world", "it"), "400", "lane, tenant or channel"},
		"pause no lane":    {pause("lane", "nowhere"), "404", "posthouse lanes"},
		"pause two tokens": {pause("tenant", "acme.>"), "400", "no tenant"},
		"pause nobody":     {pause("tenant", "_"), "400", "no tenant"},
		"resume no lane":   {refused(c.Resume(ctx, delivery.PauseCommand{Scope: "lane", Name: "nowhere", Warrant: operator})), "404", "posthouse lanes"},
		"resume for":       {refused(c.Resume(ctx, delivery.PauseCommand{Scope: "lane", Name: key, For: 1, Warrant: operator})), "400", "pause again"},
		"quota of whom":    {quota(delivery.QuotaCommand{Bucket: "a b", Channel: "mail", Warrant: operator}), "400", "no tenant"},
		"quota of what":    {quota(delivery.QuotaCommand{Bucket: "acme", Channel: "fax", Warrant: operator}), "400", "not mail or sms"},
		"quota below 0":    {quota(delivery.QuotaCommand{Bucket: "acme", Channel: "mail", Monthly: &minus, Warrant: operator}), "400", "negative"},
		"quota on Mars":    {quota(delivery.QuotaCommand{Bucket: "acme", Channel: "mail", Zone: "Mars/Olympus", Warrant: operator}), "400", "time zone"},
		"quota both ways":  {quota(delivery.QuotaCommand{Bucket: "acme", Channel: "mail", Hold: true, Remove: true, Warrant: operator}), "400", "remove comes alone"},
		"which month":      {refused(c.QuotaUsage(ctx, delivery.QuotaFilter{Month: "May"})), "400", "2026-11"},
		"month of quotas":  {refused(c.Quotas(ctx, delivery.QuotaFilter{Month: "2026-11"})), "400", "ask for usage"},
	} {
		var refusal *bus.Error
		if !errors.As(one.err, &refusal) || refusal.Code != one.code || !strings.Contains(refusal.Text, one.says) {
			t.Errorf("%s: %v, want %s %q", name, one.err, one.code, one.says)
		}
	}
	lanes, err := c.Lanes(ctx, delivery.LaneFilter{Key: key})
	if err != nil || len(lanes) != 1 || lanes[0].Breaker != "closed" || lanes[0].Paused {
		t.Errorf("%+v %v", lanes, err)
	}
	if lanes, err = c.Lanes(ctx, delivery.LaneFilter{Key: key, Trouble: true}); err != nil || len(lanes) != 0 {
		t.Errorf("a lane without trouble: %+v %v", lanes, err)
	}
	if entries, err := c.Audit(ctx, delivery.AuditFilter{}); err != nil || len(entries) != 0 {
		t.Errorf("refused requests left an audit: %+v %v", entries, err)
	}
}
