package house_test

import (
	"bufio"
	"encoding/base64"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/services/house/housetest"
	"github.com/posthouse-io/posthouse/streams"
)

// mark is in everything that may not be told: subject, bodies, addresses, names,
// passwords.
const mark = "Zq7Mark"

// Whatever becomes of a delivery, neither its content nor its addresses nor a
// password is in a log of any service (at the level trace), in an event, a dead
// letter or the text of an answer.
func TestContentAndSecretsStayWhereTheyBelong(t *testing.T) {
	t.Parallel()
	const password = mark + "-password"
	s := housetest.New(t, housetest.Options{
		Sink: smtpsink.Options{Username: "post", Password: password},
		Env: map[string]string{"LOG_LEVEL": "trace", "RETRY_MAIL_MAX_RETRIES": "1",
			"MAIL_SERVER_USERNAME": "post", "MAIL_SERVER_PASSWORD": password},
	})
	sender, watchdog, deadLetter := s.StartAll()
	var published []*nats.Msg
	for i, to := range []string{"ok", "refuse", "busy", "drop", "spam", "defer-1"} {
		published = append(published, marked(fmt.Sprintf("r-%d", i), fmt.Sprintf("%s+%s@%s.example", to, mark, mark)))
	}
	for i, to := range []string{ // cannot be prepared, or not be sent to
		"no " + mark + " address", mark, mark + "@-" + mark + "-.example", mark + "@[127.0.0.1]", strings.Repeat(mark, 12) + "@example.org", mark + "@" + mark + "..example",
	} {
		published = append(published, marked(fmt.Sprintf("u-%d", i), to))
	}
	s.Publish(published...)
	poison := []*nats.Msg{
		housetest.Raw(sendAcme, []byte(mark)),
		housetest.Raw(sendAcme, []byte(`{"version":1,"id":"p","to":"`+mark+`@example.org"}`)),
		housetest.Raw(sendAcme, []byte(`{"version":1,"id":"p","to":["a@example.org"],"subject":{"x":"`+mark+`"}}`)),
		housetest.Raw(sendAcme, []byte(`{"version":1,"id":"p","to":[],"subject":"`+mark+`","text":"`+mark+`"}`)),
		housetest.Raw("posthouse.send.fax.acme", []byte(`{"text":"`+mark+`"}`)),
	}
	s.Publish(poison...)
	checkMarks(t, s, len(published), len(poison), sender, watchdog, deadLetter)
}

// Mail servers repeat what they were told. One that repeats everything, passwords
// included, does not make us tell it.
func TestServerThatRepeatsEverything(t *testing.T) {
	t.Parallel()
	for name, credentials := range map[string]map[string]string{
		"recipients": {},
		"password":   {"MAIL_SERVER_USERNAME": "post", "MAIL_SERVER_PASSWORD": mark + "-password"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			host, port, _ := net.SplitHostPort(parrot(t))
			env := map[string]string{"LOG_LEVEL": "trace", "RETRY_MAIL_MAX_RETRIES": "1", "MAIL_SERVER_HOST": host, "MAIL_SERVER_PORT": port}
			for k, v := range credentials {
				env[k] = v
			}
			s := housetest.New(t, housetest.Options{Env: env})
			sender, watchdog, deadLetter := s.StartAll()
			var published []*nats.Msg
			for i, to := range []string{"550", "451"} {
				published = append(published, marked(fmt.Sprintf("r-%d", i), to+"-"+mark+"@"+mark+".example"))
			}
			s.Publish(published...)
			checkMarks(t, s, len(published), 0, sender, watchdog, deadLetter)
			if !strings.Contains(sender.Log.String(), "says the parrot") {
				t.Error("the server's own words are not told: the test proves nothing")
			}
		})
	}
}

// marked is a request whose every part has the mark.
func marked(id, to string) *nats.Msg {
	r := delivery.Request{ID: id, MailRequest: delivery.MailRequest{
		To: []string{to}, Bcc: []string{"bcc-" + mark + "@example.org"}, ReplyTo: "Reply " + mark + " <reply-" + mark + "@example.org>",
		Subject: "subject " + mark, Text: "text " + mark, HTML: "<p>" + mark + "</p>",
		Attachments: []delivery.Attachment{{Name: mark + ".txt", Content: []byte(mark)}},
	}}
	if strings.Contains(to, "+") || strings.Contains(to, "-"+mark+"@") { // the fate of that recipient alone
		r.Bcc = nil
	}
	return housetest.Request("acme", r)
}

// checkMarks waits until all is settled and looks everywhere.
func checkMarks(t *testing.T, s *housetest.Site, deliveries, poison int, services ...*housetest.Service) {
	t.Helper()
	s.Settled(deliveries, time.Minute)
	localtest.Eventually(t, 30*time.Second, func() error {
		n, err := s.Count(`SELECT count(*) FROM dead_letter`)
		dead, e := s.Count(`SELECT count(*) FROM delivery WHERE state IN ('failed', 'dead')`)
		if err == nil && e == nil && n < dead+poison {
			err = fmt.Errorf("%d letters, want %d", n, dead+poison)
		}
		return err
	})
	s.Settled(deliveries, time.Minute)
	hidden := []string{mark, base64.StdEncoding.EncodeToString([]byte(mark + "-password")), base64.StdEncoding.EncodeToString([]byte("\x00post\x00" + mark + "-password"))}
	if u, err := url.Parse(s.DatabaseURL); err == nil {
		if word, ok := u.User.Password(); ok {
			hidden = append(hidden, word)
		}
	}
	look := func(where, text string) {
		t.Helper()
		for _, word := range hidden {
			if at := strings.Index(strings.ToLower(text), strings.ToLower(word)); at >= 0 {
				t.Errorf("%s shows what it must not: %q", where, text[max(0, at-160):min(len(text), at+80)])
				return
			}
		}
	}
	for _, v := range services {
		v.Stop()
		for line := range strings.Lines(v.Log.String()) {
			look("a log line", line)
		}
	}
	for _, stream := range []string{streams.Events, streams.DeadLetter, streams.Advisories} {
		for _, m := range s.Stream(stream) {
			look(stream, m.Subject+" "+string(m.Data)+" "+fmt.Sprint(m.Header))
		}
	}
	for _, sql := range []string{
		`SELECT coalesce(string_agg(answer::text, ' '), '') FROM delivery`, `SELECT coalesce(string_agg(answer::text, ' '), '') FROM attempt`,
		`SELECT coalesce(string_agg(code || ' ' || text, ' '), '') FROM recipient`, `SELECT coalesce(string_agg(reason || code || summary::text, ' '), '') FROM dead_letter`,
		`SELECT coalesce(string_agg(key, ' '), '') FROM lane`,
	} {
		var text string
		if err := s.DB.QueryRow(t.Context(), sql).Scan(&text); err != nil {
			t.Fatal(err)
		}
		look(sql, text)
	}
}

// parrot is a mail server that refuses everything and says what it was told: a
// login with the password in clear and as it came, a recipient whose local part
// begins with 451 for now, any other for good.
func parrot(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { repeat(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	return l.Addr().String()
}

func repeat(c net.Conn) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	say := func(line string) { _, _ = c.Write([]byte(line + "\r\n")) }
	say("220 parrot.example")
	lines := bufio.NewScanner(c)
	for lines.Scan() {
		line := lines.Text()
		verb, argument, _ := strings.Cut(line, " ")
		switch strings.ToUpper(verb) {
		case "EHLO":
			say("250-parrot.example")
			say("250 AUTH PLAIN")
		case "AUTH":
			_, response, _ := strings.Cut(argument, " ")
			clear, _ := base64.StdEncoding.DecodeString(response)
			say("535 5.7.8 says the parrot: " + response + " that is " + strings.ReplaceAll(string(clear), "\x00", " "))
		case "RCPT":
			address := strings.TrimPrefix(argument, "TO:")
			code := "550 5.1.1 "
			if strings.HasPrefix(address, "<451") {
				code = "451 4.7.1 "
			}
			say(code + address + ": says the parrot; " + strings.ToUpper(address) + " is not known here, try <other-" + mark + "@" + mark + ".example>")
		case "QUIT":
			say("221 bye")
			return
		case "DATA":
			say("554 5.5.1 no recipients")
		default:
			say("250 " + line)
		}
	}
}
