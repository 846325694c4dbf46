package streams_test

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/streams"
)

func everySubject() map[string]string { // subject -> stream
	m := map[string]string{
		streams.Send("mail", "acme"): streams.Requests,
		streams.Send("as4", ""):      streams.Requests,
		streams.Inbound("acme"):      streams.Requests,
		streams.Inbound(""):          streams.Requests,
	}
	for _, k := range streams.Kinds() {
		m[streams.Event(k, "sent", "mail", "acme")] = streams.Events
		m[streams.Event(k, "", "", "")] = streams.Events
	}
	for _, s := range streams.Sources() {
		m[streams.DLQ(s, "mail", "acme")] = streams.DeadLetter
		m[streams.DLQ(s, "", "")] = streams.DeadLetter
	}
	return m
}

// Every subject that is to be stored lands in exactly one stream; core subjects
// land in none.
func TestSubjectsLandInOneStream(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	js, _ := serve(t, 0)
	apply(t, ctx, js, small())
	for subject, want := range everySubject() {
		ack, err := js.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: []byte("x")})
		if err != nil || ack.Stream != want {
			t.Errorf("%s: ack %+v, error %v, want stream %s", subject, ack, err, want)
		}
		if got := holders(subject); len(got) != 1 || got[0] != want {
			t.Errorf("%s is held by %v", subject, got)
		}
		names := js.StreamNames(ctx)
		total := 0
		for name := range names.Name() {
			s, err := js.Stream(ctx, name)
			if err != nil {
				t.Fatal(err)
			}
			total += int(s.CachedInfo().State.Msgs)
			if err := s.Purge(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if total != 1 {
			t.Errorf("%s is stored %d times", subject, total)
		}
	}
	for _, subject := range []string{streams.Ops("sender", "status"), streams.OpsEach("sender", "status"), streams.Doorbell("queue")} {
		if name, err := js.StreamNameBySubject(ctx, subject); err == nil {
			t.Errorf("%s is stored in %s", subject, name)
		}
		if got := holders(subject); len(got) != 0 {
			t.Errorf("%s is held by %v", subject, got)
		}
	}
}

func holders(subject string) []string {
	var names []string
	for _, d := range streams.Load() {
		if d.Holds(subject) {
			names = append(names, d.Config.Name)
		}
	}
	return names
}

func TestSubjectsRoundTrip(t *testing.T) {
	t.Parallel()
	if c, tn, err := streams.ParseSend(streams.Send("mail", "acme-1_X")); c != "mail" || tn != "acme-1_X" || err != nil {
		t.Error(c, tn, err)
	}
	if tn, err := streams.ParseInbound(streams.Inbound("")); tn != streams.None || err != nil {
		t.Error(tn, err)
	}
	if e, err := streams.ParseEvent(streams.Event(streams.KindAlert, "raised", "", "acme")); err != nil ||
		e != (streams.EventSubject{Kind: streams.KindAlert, State: "raised", Channel: "_", Tenant: "acme"}) {
		t.Error(e, err)
	}
	if d, err := streams.ParseDLQ(streams.DLQ(streams.MLSOverdue, "as4", "acme")); err != nil ||
		d != (streams.DLQSubject{Source: streams.MLSOverdue, Channel: "as4", Tenant: "acme"}) {
		t.Error(d, err)
	}
	if s, v, err := streams.ParseOps(streams.Ops("dead-letter", "list")); s != "dead-letter" || v != "list" || err != nil {
		t.Error(s, v, err)
	}
	if s := streams.OpsEach("a.b", "c"); s != "" {
		t.Error(s)
	}
	if k, err := streams.ParseDoorbell(streams.Doorbell("queue")); k != "queue" || err != nil {
		t.Error(k, err)
	}
	for _, bad := range []string{"a.b", "*", ">", "a b", "ä", "a\n", strings.Repeat("x", 65)} {
		if streams.Token(bad) || streams.Send("mail", bad) != "" || streams.DLQ(streams.Held, bad, "t") != "" {
			t.Errorf("%q passes", bad)
		}
	}
	for _, bad := range []string{"", "posthouse.send.mail", "posthouse.send.mail.a.b", "posthouse.send..a", "posthouse.send.mail.*",
		"xposthouse.send.mail.a", "posthouse.send.mail.", "POSTHOUSE.send.mail.a"} {
		if _, _, err := streams.ParseSend(bad); err == nil {
			t.Errorf("ParseSend(%q) passes", bad)
		}
	}
	if _, err := streams.ParseEvent("posthouse.event.other.sent.mail.acme"); err == nil {
		t.Error("an unknown kind passes")
	}
	if _, err := streams.ParseDLQ("posthouse.dlq.other.mail.acme"); err == nil {
		t.Error("an unknown source passes")
	}
	if got := streams.EventsOf(streams.KindDelivery, ""); got != "posthouse.event.delivery.*.*.*" {
		t.Error(got)
	}
	if streams.EventsOf(streams.KindDelivery, "a.b") != "" {
		t.Error("EventsOf lets a dot pass")
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, subject string
		want             bool
	}{
		{"a.*.c", "a.b.c", true}, {"a.*", "a.b.c", false}, {"a.>", "a.b.c", true}, {"a.>", "a", false},
		{"a.b", "a.b", true}, {"a.b", "a", false}, {"*", "", false}, {">", "a", true}, {"a.*.*", "a.b.", false},
	} {
		if got := streams.Matches(c.pattern, c.subject); got != c.want {
			t.Errorf("Matches(%s, %s) = %v", c.pattern, c.subject, got)
		}
	}
}

// What parses is written back as it was, and what is written parses.
func FuzzSubjects(f *testing.F) {
	f.Add("posthouse.send.mail.acme")
	f.Add("posthouse.event.delivery.sent.mail.acme")
	f.Add("posthouse.dlq.poison._._")
	f.Add("posthouse.ops.sender.status")
	f.Fuzz(func(t *testing.T, s string) {
		if c, tn, err := streams.ParseSend(s); err == nil && streams.Send(c, tn) != s {
			t.Errorf("send %q", s)
		}
		if tn, err := streams.ParseInbound(s); err == nil && streams.Inbound(tn) != s {
			t.Errorf("inbound %q", s)
		}
		if e, err := streams.ParseEvent(s); err == nil && streams.Event(e.Kind, e.State, e.Channel, e.Tenant) != s {
			t.Errorf("event %q", s)
		}
		if d, err := streams.ParseDLQ(s); err == nil && streams.DLQ(d.Source, d.Channel, d.Tenant) != s {
			t.Errorf("dlq %q", s)
		}
		if sv, v, err := streams.ParseOps(s); err == nil && streams.Ops(sv, v) != s {
			t.Errorf("ops %q", s)
		}
		if k, err := streams.ParseDoorbell(s); err == nil && streams.Doorbell(k) != s {
			t.Errorf("doorbell %q", s)
		}
		if subject := streams.Send(s, s); subject != "" {
			if c, _, err := streams.ParseSend(subject); err != nil || (c != s && s != "") {
				t.Errorf("%q makes %q", s, subject)
			}
		}
	})
}
