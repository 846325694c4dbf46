package smtp_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/pkg/transport/smtp"
)

func sink(t *testing.T, o smtpsink.Options) *smtpsink.Sink {
	t.Helper()
	s, err := smtpsink.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// both runs a test against servers with and without PIPELINING.
func both(t *testing.T, test func(t *testing.T, keywords ...string)) {
	t.Parallel()
	t.Run("pipelined", func(t *testing.T) { t.Parallel(); test(t, "PIPELINING") })
	t.Run("one by one", func(t *testing.T) { t.Parallel(); test(t) })
}

// serve answers commands from a table by their first word, "RCPT TO:<x@y>" first,
// until the client is gone; a message is read after "354".
func serve(l *line, replies map[string]string, heard func(string)) {
	for {
		cmd := l.hear()
		if cmd == "" {
			return
		}
		heard(cmd)
		word, _, _ := strings.Cut(cmd, " ")
		rep, ok := replies[cmd]
		if !ok {
			if rep, ok = replies[word]; !ok {
				rep = "250 2.0.0 ok"
			}
		}
		l.say(rep)
		if strings.HasPrefix(rep, "354") {
			text, whole := l.body()
			if !whole {
				heard("(cut)")
				return
			}
			heard(fmt.Sprintf("(%d bytes)", len(text)))
			if rep, ok = replies["."]; !ok {
				rep = "250 2.0.0 Ok: queued as Q1"
			}
			if rep == "" {
				return
			}
			l.say(rep)
		}
	}
}

// record collects what a server hears; read it after the transport is closed.
func record(into chan<- string) func(string) { return func(s string) { into <- s } }

func TestEachRecipientHasItsAnswer(t *testing.T) {
	both(t, func(t *testing.T, keywords ...string) {
		heard := make(chan string, 100)
		host, port := raw(t, func(_ int, l *line) {
			l.greet(keywords...)
			serve(l, map[string]string{
				"RCPT TO:<gone@x.test>": "550 5.1.1 no such user",
				"RCPT TO:<grey@x.test>": "451 4.7.1 Greylisted, try again in 120 seconds",
				"DATA":                  "354 go",
			}, record(heard))
		})
		tr := open(t, config(host, port))
		out := tr.Send(t.Context(), message(t, "one@x.test", "gone@x.test", "grey@x.test", "two@x.test", "not an address"))
		expect(t, out, delivery.Accepted, delivery.NoCategory, smtp.PhaseFinal, "250")
		if out.RemoteID != "Q1" || out.RetryAfter != 2*time.Minute || out.Answer.Enhanced != "2.0.0" || out.Remote != fmt.Sprintf("%s:%d", host, port) {
			t.Errorf("%+v", out)
		}
		var got []string
		for _, r := range out.Recipients {
			got = append(got, fmt.Sprintf("%d %s %s %s %s", r.Ordinal, r.Verdict, r.Answer.Category, r.Answer.Code, r.Answer.Enhanced))
		}
		want := "0 accepted  250 2.0.0|1 refused PERMANENT 550 5.1.1|2 refused TRANSIENT 451 4.7.1|3 accepted  250 2.0.0|4 refused INVALID_INPUT ADDRESS_INVALID "
		if s := strings.Join(got, "|"); s != want {
			t.Errorf("got  %s\nwant %s", s, want)
		}
	})
}

func TestAllRefusedMeansNoMessage(t *testing.T) {
	both(t, func(t *testing.T, keywords ...string) {
		heard := make(chan string, 100)
		host, port := raw(t, func(_ int, l *line) {
			l.greet(keywords...)
			serve(l, map[string]string{"RCPT": "550 5.1.1 no", "RCPT TO:<later@x.test>": "450 4.2.0 later", "DATA": "503 5.5.1 no recipients"}, record(heard))
			close(heard)
		})
		tr := open(t, config(host, port))
		m := message(t, "a@x.test", "later@x.test")
		m.Proceed = func() error { t.Error("Proceed was asked"); return nil }
		out := tr.Send(t.Context(), m)
		// The refusal that a retry may cure speaks for the message.
		expect(t, out, delivery.Refused, delivery.Transient, smtp.PhaseRcpt, "450")
		if len(out.Recipients) != 2 || out.Recipients[0].Answer.Code != "550" {
			t.Errorf("%+v", out.Recipients)
		}
		tr.Close()
		var all []string
		for s := range heard {
			all = append(all, s)
		}
		said := strings.Join(all, "|")
		if !strings.Contains(said, "RSET|QUIT") || strings.Contains(said, "bytes") {
			t.Errorf("the server heard %s", said)
		}
		if data := strings.Contains(said, "DATA"); data != (len(keywords) > 0) {
			t.Errorf("DATA: %v in %s", data, said)
		}
	})
}

// A pipelined DATA that the server follows although it has no recipients is
// ended without the final dot.
func TestServerThatWantsMailForNobody(t *testing.T) {
	t.Parallel()
	heard := make(chan string, 100)
	host, port := raw(t, func(_ int, l *line) {
		l.greet("PIPELINING")
		serve(l, map[string]string{"RCPT": "550 5.1.1 no", "DATA": "354 go"}, record(heard))
		close(heard)
	})
	tr := open(t, config(host, port))
	expect(t, tr.Send(t.Context(), message(t, "a@x.test")), delivery.Refused, delivery.Permanent, smtp.PhaseRcpt, "550")
	var last string
	for s := range heard {
		last = s
	}
	if last != "(cut)" {
		t.Errorf("the server last heard %s", last)
	}
}

func TestPipeliningIsOneWriteAndNotAssumed(t *testing.T) {
	t.Parallel()
	for _, pipelined := range []bool{true, false} {
		early := make(chan bool, 1)
		host, port := raw(t, func(_ int, l *line) {
			if pipelined {
				l.greet("PIPELINING")
			} else {
				l.greet()
			}
			l.hear() // MAIL
			_ = l.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
			_, err := l.r.Peek(1) // anything before MAIL is answered?
			early <- err == nil
			_ = l.SetReadDeadline(time.Time{})
			l.say("250 ok")
			serve(l, map[string]string{"DATA": "354 go"}, func(string) {})
		})
		tr := open(t, config(host, port))
		expect(t, tr.Send(t.Context(), message(t, "a@x.test", "b@x.test")), delivery.Accepted, "", smtp.PhaseFinal, "250")
		if got := <-early; got != pipelined {
			t.Errorf("pipelining offered: %v, used: %v", pipelined, got)
		}
	}
}

func TestManyRecipientsInWindows(t *testing.T) {
	t.Parallel()
	s := sink(t, smtpsink.Options{MaxRcpts: 250})
	tr := open(t, config(s.Host(), s.Port()))
	var to []string
	for i := range 300 {
		to = append(to, fmt.Sprintf("r%d@x.test", i))
	}
	out := tr.Send(t.Context(), message(t, to...))
	expect(t, out, delivery.Accepted, "", smtp.PhaseFinal, "250")
	late := 0
	for _, r := range out.Recipients {
		if r.Verdict == delivery.Refused {
			late++
			if r.Answer.Category != delivery.Transient {
				t.Errorf("%+v", r)
			}
		}
	}
	if late != 50 || len(s.Entries()[0].To) != 250 {
		t.Errorf("%d refused, %d taken", late, len(s.Entries()[0].To))
	}
}

// Where each phase goes wrong, with and without pipelining.
func TestPhases(t *testing.T) {
	both(t, func(t *testing.T, keywords ...string) {
		for _, c := range []struct {
			name     string
			replies  map[string]string
			verdict  delivery.Verdict
			category delivery.Category
			phase    delivery.Phase
			code     string
		}{
			{"MAIL refused", map[string]string{"MAIL": "550 5.7.1 not you"}, delivery.Refused, delivery.Policy, smtp.PhaseMail, "550"},
			{"MAIL refused and DATA let in", map[string]string{"MAIL": "550 5.7.1 not you", "RCPT": "503 no", "DATA": "354 go"}, delivery.Refused, delivery.Policy, smtp.PhaseMail, "550"},
			{"MAIL wants AUTH", map[string]string{"MAIL": "530 5.7.0 who are you"}, delivery.Refused, delivery.Auth, smtp.PhaseMail, "530"},
			{"MAIL 421", map[string]string{"MAIL": "421 4.3.2 going down"}, delivery.Refused, delivery.Transient, smtp.PhaseMail, "421"},
			{"MAIL with 354", map[string]string{"MAIL": "354 what"}, delivery.Refused, delivery.Transient, smtp.PhaseMail, smtp.CodeProtocol},
			{"RCPT 421", map[string]string{"RCPT": "421 4.7.0 too fast"}, delivery.Refused, delivery.Transient, smtp.PhaseRcpt, "421"},
			{"RCPT 251", map[string]string{"RCPT": "251 will forward", "DATA": "354 go"}, delivery.Accepted, "", smtp.PhaseFinal, "250"},
			{"DATA refused", map[string]string{"DATA": "451 4.3.0 no space"}, delivery.Refused, delivery.Transient, smtp.PhaseData, "451"},
			{"DATA with 250", map[string]string{"DATA": "250 ok"}, delivery.Refused, delivery.Transient, smtp.PhaseData, smtp.CodeProtocol},
			{"dot refused for now", map[string]string{"DATA": "354 go", ".": "452 4.3.1 full"}, delivery.Refused, delivery.Transient, smtp.PhaseFinal, "452"},
			{"dot refused", map[string]string{"DATA": "354 go", ".": "554 5.7.1 spam"}, delivery.Refused, delivery.Policy, smtp.PhaseFinal, "554"},
			{"dot 421", map[string]string{"DATA": "354 go", ".": "421 4.3.2 going down"}, delivery.Refused, delivery.Transient, smtp.PhaseFinal, "421"},
			{"dot without answer", map[string]string{"DATA": "354 go", ".": ""}, delivery.Unknown, "", smtp.PhaseFinal, smtp.CodeLost},
			{"dot with garbage", map[string]string{"DATA": "354 go", ".": "OK!"}, delivery.Unknown, "", smtp.PhaseFinal, smtp.CodeProtocol},
			{"dot with 354", map[string]string{"DATA": "354 go", ".": "354 go on"}, delivery.Unknown, "", smtp.PhaseFinal, "354"},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				host, port := raw(t, func(_ int, l *line) {
					l.greet(keywords...)
					serve(l, c.replies, func(string) {})
				})
				tr := open(t, config(host, port))
				expect(t, tr.Send(t.Context(), message(t, "a@x.test")), c.verdict, c.category, c.phase, c.code)
			})
		}
	})
}

func TestUnknownKeepsWhatIsKnownOfRecipients(t *testing.T) {
	t.Parallel()
	s := sink(t, smtpsink.Options{})
	tr := open(t, config(s.Host(), s.Port()))
	out := tr.Send(t.Context(), message(t, "refuse@x.test", "drop-accept@x.test"))
	expect(t, out, delivery.Unknown, "", smtp.PhaseFinal, smtp.CodeLost)
	if r := out.Recipients; len(r) != 2 || r[0].Verdict != delivery.Refused || r[1].Verdict != delivery.Unknown {
		t.Errorf("%+v", r)
	}
}

func TestContentFaults(t *testing.T) {
	t.Parallel()
	s := sink(t, smtpsink.Options{MaxBytes: 2000})
	c := config(s.Host(), s.Port())
	tr := open(t, c)
	bad := message(t, "a@x.test")
	bad.Content = []byte(`{"bcc":"x"}`)
	expect(t, tr.Send(t.Context(), bad), delivery.Refused, delivery.InvalidInput, smtp.PhaseContent, smtp.CodeContent)
	expect(t, tr.Send(t.Context(), message(t)), delivery.Refused, delivery.InvalidInput, smtp.PhaseContent, smtp.CodeContent)
	expect(t, tr.Send(t.Context(), message(t, "nobody")), delivery.Refused, delivery.InvalidInput, smtp.PhaseContent, smtp.CodeAddress)
	expect(t, tr.Send(t.Context(), with(t, smtp.Mail{Text: strings.Repeat("x", 3000)}, "a@x.test")), delivery.Refused, delivery.InvalidInput, smtp.PhaseMail, "552")
	if s.Connections() != 1 { // only the size needed the server's word
		t.Errorf("%d connections", s.Connections())
	}
	c.FromAddress = ""
	expect(t, open(t, c).Send(t.Context(), message(t, "a@x.test")), delivery.Refused, delivery.Config, smtp.PhaseContent, smtp.CodeConfig)
}

func TestInternationalAddresses(t *testing.T) {
	t.Parallel()
	s := sink(t, smtpsink.Options{KeepBody: 4096})
	tr := open(t, config(s.Host(), s.Port()))
	m := with(t, smtp.Mail{To: []smtp.Address{{Address: "jürgen@bücher.example"}}, Text: "x", EnvelopeFrom: "<>"}, "jürgen@bücher.example")
	expect(t, tr.Send(t.Context(), m), delivery.Accepted, "", smtp.PhaseFinal, "250")
	if e := s.Entries()[0]; e.To[0] != "jürgen@xn--bcher-kva.example" || e.From != "" || e.MessageID != m.ID.String()+"@example.com" {
		t.Errorf("%+v", e)
	}

	host, port := raw(t, func(_ int, l *line) {
		l.greet("PIPELINING")
		serve(l, map[string]string{"DATA": "354 go"}, func(string) {})
	})
	plain := open(t, config(host, port))
	out := plain.Send(t.Context(), message(t, "jürgen@x.test", "a@x.test"))
	expect(t, out, delivery.Accepted, "", smtp.PhaseFinal, "250")
	if r := out.Recipients[0]; r.Verdict != delivery.Refused || r.Answer.Category != delivery.InvalidInput {
		t.Errorf("%+v", r)
	}
	expect(t, plain.Send(t.Context(), m), delivery.Refused, delivery.InvalidInput, smtp.PhaseRcpt, smtp.CodeAddress)
}
