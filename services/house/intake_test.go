package house_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/services/house/housetest"
	"github.com/posthouse-io/posthouse/streams"
)

// poison is a message that never can be accepted, and what is to become of it.
type poison struct {
	name    string
	message *nats.Msg
	letter  string // subject of the dead letter
	code    string
	reason  string // part of it
}

const sendAcme = "posthouse.send.mail.acme"

// body is a good request with further members.
func body(id, members string) []byte {
	return fmt.Appendf(nil, `{"version":1,"id":%q,"to":["a@example.org"],"subject":"s","text":"t"%s}`, id, members)
}

func poisons() []poison {
	const letter = "posthouse.dlq.poison.mail.acme"
	withID := func(m *nats.Msg, id string) *nats.Msg { m.Header.Set(bus.HeaderMsgID, id); return m }
	withHeader := func(m *nats.Msg) *nats.Msg {
		m.Header["X-Strange"] = []string{"one", "t\xc3\xb6o", "\xff\xfe"}
		return m
	}
	raw := func(b []byte) *nats.Msg { return housetest.Raw(sendAcme, b) }
	return []poison{
		{"the same id with another body", raw(body("first", `,"cc":["b@example.org"]`)), letter, "CONFLICT", "accepted before with another body, as delivery"},
		{"no JSON", raw([]byte(`to: somebody`)), letter, "MALFORMED", "not JSON"},
		{"nothing at all", raw(nil), letter, "MALFORMED", "ends before"},
		{"JSON cut short", raw([]byte(`{"version":1,"id":"x","to":["a@ex`)), letter, "MALFORMED", "ends before"},
		{"JSON and more", raw(append(body("more", ""), `{}`...)), letter, "MALFORMED", "more after the JSON object"},
		{"an array", raw([]byte(`[1,2]`)), letter, "MALFORMED", "array"},
		{"an unknown field", raw(body("field", `,"recipients":[]`)), letter, "MALFORMED", `unknown field "recipients"`},
		{"a field of another type", raw([]byte(`{"version":1,"id":"type","to":"a@example.org","subject":"s","text":"t"}`)), letter, "MALFORMED", "to is a JSON string"},
		{"another version", raw([]byte(`{"version":2,"id":"v2","to":["a@example.org"],"subject":"s","text":"t"}`)), letter, "MALFORMED", "version is 2, want 1"},
		{"no id", raw(body("", "")), letter, "MALFORMED", "id (or the header Nats-Msg-Id)"},
		{"an id with a NUL", raw([]byte(`{"version":1,"id":"a\u0000b","to":["a@example.org"],"subject":"s","text":"t"}`)), letter, "MALFORMED", "printable ASCII"},
		{"two ids", withID(raw(body("two", "")), "another"), letter, "MALFORMED", "differ"},
		{"no UTF-8", raw([]byte("{\"version\":1,\"id\":\xff\xfe}")), letter, "MALFORMED", "not UTF-8"},
		{"Latin-1", raw([]byte("{\"version\":1,\"id\":\"latin\",\"to\":[\"a@example.org\"],\"subject\":\"caf\xe9\",\"text\":\"t\"}")), letter, "MALFORMED", "not UTF-8"},
		{"10 000 levels", raw([]byte(`{"custom":` + strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001) + `}`)), letter, "MALFORMED", "not JSON"},
		{"10 000 levels of custom", raw(body("deep", `,"custom":`+strings.Repeat(`{"a":`, 9000)+"1"+strings.Repeat("}", 9000))), letter, "MALFORMED", "custom has"},
		{"too many recipients", raw(body("many", `,"cc":[`+strings.TrimSuffix(strings.Repeat(`"a@b.example",`, 200), ",")+`]`)), letter, "MALFORMED", "at most 100"},
		{"too long a subject", raw([]byte(`{"version":1,"id":"long","to":["a@example.org"],"text":"t","subject":"` + strings.Repeat("x", 999) + `"}`)), letter, "MALFORMED", "at most 998"},
		{"nobody to send to", raw([]byte(`{"version":1,"id":"none","to":[],"subject":"s","text":"t"}`)), letter, "MALFORMED", "to is empty"},
		{"an ordering key that is not printable", raw(body("key", `,"ordering_key":"a\u0000"`)), letter, "MALFORMED", "ordering_key"},
		{"strange headers", withHeader(raw([]byte(`{`))), letter, "MALFORMED", "ends before"},
		{"an unknown channel", housetest.Raw("posthouse.send.fax.acme", body("fax", "")), "posthouse.dlq.poison.fax.acme", "MALFORMED", `"fax" is not known`},
		{"a tenant with a letter that is none", housetest.Raw("posthouse.send.mail.m\xc3\xbcller", body("umlaut", "")), "posthouse.dlq.poison._._", "MALFORMED", "token 2"},
		{"a tenant that is no text", housetest.Raw("posthouse.send.mail.a\xff\xfe", body("bytes", "")), "posthouse.dlq.poison._._", "MALFORMED", "token 2"},
		{"a tenant too long", housetest.Raw("posthouse.send.mail."+strings.Repeat("a", 65), body("wide", "")), "posthouse.dlq.poison._._", "MALFORMED", "token 2"},
		{"a tenant with a quote", housetest.Raw("posthouse.send.mail.a'b", body("quote", "")), "posthouse.dlq.poison._._", "MALFORMED", "token 2"},
	}
}

// What cannot be read is archived once, byte for byte, told once and taken off
// the stream, and its neighbours in the same batch are sent. A replay of the
// whole stream changes nothing.
func TestPoisonIsArchivedOnceAndHarmsNobody(t *testing.T) {
	t.Parallel()
	s := housetest.New(t, housetest.Options{})
	bad := poisons()
	published := []*nats.Msg{housetest.Raw(sendAcme, body("first", ""))}
	good := 1
	for i, p := range bad {
		published = append(published, p.message, housetest.Mail("acme", fmt.Sprintf("neighbour-%d", i), "n@example.org"))
		good++
	}
	published = append(published, housetest.Raw(sendAcme, body("first", ""))) // as it was: no conflict, and nothing new
	// They are all there before anybody reads, so that one batch holds them.
	s.Publish(published...)
	sender := s.Start(housetest.Sender, nil)
	s.Settled(good, time.Minute)
	check := func() {
		t.Helper()
		localtest.Eventually(t, 30*time.Second, func() error { return finished(s, len(published)) })
		s.Settled(good, time.Minute)
		checkLetters(t, s, bad)
		audit := s.Audit()
		audit.Check(t)
		for _, c := range audit.Accounts {
			if c.State != delivery.Sent || c.Arrivals != 1 {
				t.Errorf("%s of %s: %s, arrived %d times", c.RequestID, c.Tenant, c.State, c.Arrivals)
			}
		}
		if told := len(s.Stream(streams.DeadLetter)); told != len(bad) {
			t.Errorf("%d dead letters were told, want %d", told, len(bad))
		}
	}
	check()
	if n := len(s.Stream(streams.Advisories)); n != len(bad) {
		t.Errorf("the server tells of %d terminated messages, want %d", n, len(bad))
	}

	// The consumer loses its memory: everything is handed out again, to two senders.
	sender.Stop()
	if err := s.JS.DeleteConsumer(t.Context(), streams.Requests, "sender"); err != nil {
		t.Fatal(err)
	}
	s.Start(housetest.Sender, nil)
	s.Start(housetest.Sender, nil)
	check()
}

// finished tells whether the requests' consumer has nothing left, of so many.
func finished(s *housetest.Site, all int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := s.JS.Consumer(ctx, streams.Requests, "sender")
	if err != nil {
		return err
	}
	info := c.CachedInfo()
	if info.NumPending > 0 || info.NumAckPending > 0 || info.AckFloor.Stream != uint64(all) {
		return fmt.Errorf("%d pending, %d not acknowledged, all done up to %d of %d", info.NumPending, info.NumAckPending, info.AckFloor.Stream, all)
	}
	return nil
}

// checkLetters holds archive and dead-letter stream against what was published.
func checkLetters(t *testing.T, s *housetest.Site, bad []poison) {
	t.Helper()
	if n, err := s.Count(`SELECT count(*) FROM dead_letter`); err != nil || n != len(bad) {
		t.Errorf("%d letters are archived, want %d (%v)", n, len(bad), err)
	}
	told := map[string]*nats.Msg{}
	for _, m := range s.Stream(streams.DeadLetter) {
		told[housetest.EventID(m)] = m
	}
	for _, p := range bad {
		var event, code, reason, subject string
		var raw, headers []byte
		var aggregate *[16]byte
		err := s.DB.QueryRow(t.Context(), `SELECT event_id, code, reason, subject, headers, raw, aggregate FROM dead_letter WHERE raw = $1 AND source = 'poison'`,
			append([]byte{}, p.message.Data...)).Scan(&event, &code, &reason, &subject, &headers, &raw, &aggregate)
		if err != nil {
			t.Errorf("%s: not in the archive: %v", p.name, err)
			continue
		}
		if code != p.code || !strings.Contains(reason, p.reason) || !bytes.Equal(raw, p.message.Data) {
			t.Errorf("%s: archived as %s %q", p.name, code, reason)
		}
		if want := strings.ToValidUTF8(p.message.Subject, "\ufffd"); subject != want {
			t.Errorf("%s: archived under subject %q, want %q", p.name, subject, want)
		}
		if (code == "CONFLICT") != (aggregate != nil) {
			t.Errorf("%s: refers to delivery %x", p.name, aggregate)
		}
		m := told["dlq."+event]
		if m == nil {
			t.Errorf("%s: letter %s is not on the stream", p.name, event)
			continue
		}
		var letter delivery.Letter
		if err := json.Unmarshal(m.Data, &letter); err != nil || m.Subject != p.letter || letter.EventID != event || letter.Code != p.code || letter.Reason != reason {
			t.Errorf("%s: told on %s as %s %q (%v), want it on %s as %s %q", p.name, m.Subject, letter.Code, letter.Reason, err, p.letter, p.code, reason)
		}
		if len(p.message.Data) > 20 && bytes.Contains(m.Data, p.message.Data[:20]) {
			t.Errorf("%s: the letter on the stream shows the raw bytes: %s", p.name, m.Data)
		}
	}
}

// A client that repeats a request, in a row, at once or much later, by the header
// or the body's id, gets one delivery and all its acknowledgements; another tenant
// with the same id gets its own.
func TestRepeatedRequestIsOneDelivery(t *testing.T) {
	t.Parallel()
	s := housetest.New(t, housetest.Options{})
	s.Start(housetest.Sender, nil)
	same := func() *nats.Msg { return housetest.Mail("acme", "again", "a@example.org") }
	s.Publish(same(), same(), same(), housetest.Mail("other", "again", "a@example.org"))
	s.Settled(2, 30*time.Second)
	localtest.Eventually(t, 30*time.Second, func() error { return finished(s, 4) })

	inHeader := func() *nats.Msg {
		m := housetest.Raw(sendAcme, []byte(`{"version":1,"to":["a@example.org"],"subject":"s","text":"t"}`))
		m.Header.Set(bus.HeaderMsgID, "by-header")
		return m
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var last *jetstream.PubAck
	localtest.Eventually(t, 10*time.Second, func() (err error) { // beyond the stream's own window for equal ids
		if last, err = s.JS.PublishMsg(ctx, inHeader()); err == nil && last.Sequence < 6 {
			err = fmt.Errorf("the stream has %d messages", last.Sequence)
		}
		return err
	})
	s.Publish(same())
	s.Settled(3, 30*time.Second)
	localtest.Eventually(t, 30*time.Second, func() error { return finished(s, int(last.Sequence)+1) })
	audit := s.Audit()
	audit.Check(t)
	for _, c := range audit.Accounts {
		if c.State != delivery.Sent || c.Arrivals != 1 || c.Attempts != 1 {
			t.Errorf("%s of %s: %s after %d attempts, arrived %d times", c.RequestID, c.Tenant, c.State, c.Attempts, c.Arrivals)
		}
	}
	if n, err := s.Count(`SELECT count(*) FROM dead_letter`); err != nil || n != 0 {
		t.Errorf("%d dead letters, want none (%v)", n, err)
	}
}
