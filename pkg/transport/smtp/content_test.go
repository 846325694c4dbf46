package smtp

import (
	"bufio"
	"bytes"
	"io"
	"net/mail"
	"net/textproto"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

func full() Mail {
	return Mail{
		From:         Address{Address: "alice@example.com", Name: "Älice, \"Boss\""},
		EnvelopeFrom: "bounce+1@example.com",
		To:           []Address{{Address: "bob@example.com", Name: "Bob"}, {Address: "jürgen-ascii@bücher.example"}},
		Cc:           []Address{{Address: `"c d"@example.com`}},
		ReplyTo:      []Address{{Address: "reply@example.com"}},
		Subject:      "Grüße",
		Text:         ".dot first\r\n..two\nbare \r cr, ümlaut\n" + strings.Repeat("long ", 500),
		HTML:         "<p>Grüße</p>",
		Attachments:  []Attachment{{Name: "a \"b\"/ü.pdf", ContentType: "application/pdf; name=evil", Content: []byte{0, 1, 2, '\r', '\n', '.'}}},
		Headers:      []Header{{Name: "List-Unsubscribe", Value: "<https://example.com/u>"}, {Name: "X-Note", Value: "Ü"}},
		Priority:     "high",
		ReadReceipt:  true,
		MessageID:    "id-1@example.com",
		Date:         time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC),
	}
}

func TestMailRoundTrip(t *testing.T) {
	t.Parallel()
	m := full()
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, m) {
		t.Errorf("got %+v", got)
	}
}

func TestDecodeIsStrict(t *testing.T) {
	t.Parallel()
	for in, says := range map[string]string{
		`{"subject":"x","bcc":[]}`:          "bcc",
		`{"subject":"x"}{}`:                 "follows",
		`{"subject":1}`:                     "subject",
		`{"attachments":[{"content":"!"}]}`: "base64",
		``:                                  "EOF",
		`[]`:                                "array",
	} {
		if _, err := Decode([]byte(in)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", in, err)
		}
	}
}

func TestCheckNamesEachFault(t *testing.T) {
	t.Parallel()
	if err := full().withASCII().Check(10_000); err != nil {
		t.Fatal(err)
	}
	for says, alter := range map[string]func(*Mail){
		"from":                        func(m *Mail) { m.From.Address = "alice" },
		"from.name":                   func(m *Mail) { m.From.Name = "a\r\nBcc: x@y" },
		"to[0]":                       func(m *Mail) { m.To[0].Address = "a@b, c@d" },
		"to[1]":                       func(m *Mail) { m.To[1].Address = "Bob <b@x.test>" },
		"cc[0].name":                  func(m *Mail) { m.Cc[0].Name = "\x00" },
		"reply_to[0]":                 func(m *Mail) { m.ReplyTo[0].Address = "x@y\r\nBcc: z@y" },
		"envelope_from":               func(m *Mail) { m.EnvelopeFrom = "a> SIZE=1" },
		"subject":                     func(m *Mail) { m.Subject = "a\nBcc: x@y" },
		"both are blank":              func(m *Mail) { m.Text, m.HTML, m.Attachments = " \n", "", nil },
		"characters are more than":    func(m *Mail) { m.HTML = strings.Repeat("ü", 10_001) },
		"attachments[0].name":         func(m *Mail) { m.Attachments[0].Name = "a\r\nX: y" },
		"attachments[0].content_type": func(m *Mail) { m.Attachments[0].ContentType = "text/plain\r\nX: y" },
		"cannot be one attachment":    func(m *Mail) { m.Attachments[0].ContentType = "multipart/mixed; boundary=x" },
		"headers[0]":                  func(m *Mail) { m.Headers[0].Name = "Bcc" },
		"X-Note is too long":          func(m *Mail) { m.Headers[1].Value = "a\r\nBcc: x@y" },
		"no header name":              func(m *Mail) { m.Headers[0].Name = "X:Y" },
		"not free to set":             func(m *Mail) { m.Headers[0].Name = "Content-Type" },
		"given twice":                 func(m *Mail) { m.Headers[0].Name = "x-note" },
		"priority":                    func(m *Mail) { m.Priority = "urgent" },
		"message_id":                  func(m *Mail) { m.MessageID = "<a@b>\r\nX: y" },
	} {
		m := full().withASCII()
		alter(&m)
		if err := m.Check(10_000); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", says, err)
		}
	}
	var many Mail
	many.From.Address, many.Priority, many.Subject = "x", "y", "\n"
	if err := many.Check(10); strings.Count(err.Error(), "\n") != 3 {
		t.Errorf("not every fault at once: %v", err)
	}
}

// withASCII makes the one local part beyond ASCII plain.
func (m Mail) withASCII() Mail {
	m.To = append([]Address(nil), m.To...)
	m.To[1].Address = "juergen@bücher.example"
	return m
}

// received reads a rendered message the way a server would.
func received(t *testing.T, data []byte) (*mail.Message, string) {
	t.Helper()
	plain, err := io.ReadAll(textproto.NewReader(bufio.NewReader(bytes.NewReader(data))).DotReader())
	if err != nil {
		t.Fatal(err)
	}
	msg, err := mail.ReadMessage(bytes.NewReader(plain))
	if err != nil {
		t.Fatal(err)
	}
	return msg, string(plain)
}

func TestRender(t *testing.T) {
	t.Parallel()
	m := full().withASCII()
	data, size, err := m.render(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if size <= 0 || size > len(data) || !bytes.HasSuffix(data, []byte("\r\n.\r\n")) {
		t.Errorf("size %d of %d", size, len(data))
	}
	if !isASCII(string(data)) {
		t.Error("the wire form needs 8BITMIME")
	}
	msg, plain := received(t, data)
	for name, want := range map[string]string{
		"Message-Id":                  "<id-1@example.com>",
		"Date":                        "Mon, 06 May 2024 07:08:09 +0000",
		"Bcc":                         "",
		"X-Priority":                  "1",
		"Importance":                  "high",
		"Disposition-Notification-To": "<alice@example.com>",
		"List-Unsubscribe":            "<https://example.com/u>",
		"Cc":                          `<"c d"@example.com>`,
		"User-Agent":                  "",
	} {
		if got := msg.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	to, err := msg.Header.AddressList("To")
	if err != nil || len(to) != 2 || to[1].Address != "juergen@xn--bcher-kva.example" {
		t.Errorf("To: %v %v", to, err)
	}
	from, err := msg.Header.AddressList("From")
	if err != nil || from[0].Name != m.From.Name {
		t.Errorf("From: %v %v", from, err)
	}
	for _, part := range []string{"multipart/mixed", "multipart/alternative", "text/plain", "text/html", "application/pdf", "AAECDQou"} {
		if !strings.Contains(plain, part) {
			t.Errorf("no %s", part)
		}
	}
	if strings.Contains(plain, "evil") {
		t.Error("the attachment has two names")
	}
	if _, _, err := m.render(100); err == nil {
		t.Error("beyond its bound")
	}
	m.Subject = strings.Repeat("x", 1500)
	if _, _, err := m.render(1 << 20); err == nil || !strings.Contains(err.Error(), "line") {
		t.Errorf("a line beyond RFC 5322: %v", err)
	}
}

func TestCompleteIsStable(t *testing.T) {
	t.Parallel()
	id := delivery.NewID()
	c := Defaults()
	m := Mail{Text: "x"}
	if _, err := m.complete(c, id); err != errNoSender {
		t.Errorf("no sender: %v", err)
	}
	c.FromAddress, c.FromName, c.ReplyTo = "me@bücher.example", "Me", "re@example.com"
	one, err := m.complete(c, id)
	if err != nil {
		t.Fatal(err)
	}
	two, _ := m.complete(c, id)
	a, _, err := one.render(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	b, _, _ := two.render(1 << 20)
	if !bytes.Equal(a, b) {
		t.Error("two attempts differ")
	}
	msg, _ := received(t, a)
	if got := msg.Header.Get("Message-Id"); got != "<"+id.String()+"@xn--bcher-kva.example>" {
		t.Errorf("Message-ID %s", got)
	}
	if when, err := msg.Header.Date(); err != nil || !when.Equal(id.Time().Truncate(time.Second)) {
		t.Errorf("Date %s %v", when, err)
	}
	if one.EnvelopeFrom != "me@bücher.example" || one.ReplyTo[0].Address != "re@example.com" {
		t.Errorf("%+v", one)
	}
}

func TestParseMailbox(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a@b":                                    "a@b",
		"a.b+c@example.com":                      "a.b+c@example.com",
		`"a b"@example.com`:                      `"a b"@example.com`,
		"a@bücher.example":                       "a@xn--bcher-kva.example",
		"ü@example.com":                          "ü@example.com",
		"a@EXAMPLE.com":                          "a@example.com",
		"":                                       "",
		"a":                                      "",
		"a@":                                     "",
		"@b":                                     "",
		"a@b@c":                                  "",
		"<a@b>":                                  "",
		"A <a@b>":                                "",
		"a@b, c@d":                               "",
		" a@b":                                   "",
		"a@b ":                                   "",
		"a@b (comment)":                          "",
		"a@[127.0.0.1]":                          "",
		"a@b\r\nRCPT TO:<c@d>":                   "",
		"a@b> SIZE=1":                            "",
		"a@-b.example":                           "",
		"a@b..example":                           "",
		"a@b_c.example":                          "",
		"\"a\x00b\"@example.com":                 "",
		strings.Repeat("a", 65) + "@example.com": "",
		"a@" + strings.Repeat("b", 64) + ".example": "",
	} {
		got, err := parseMailbox(in)
		if got.addr != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q %v", in, got.addr, err)
		}
		if err == nil && got.utf8 != !isASCII(want) {
			t.Errorf("%q: utf8 %v", in, got.utf8)
		}
	}
}

// FuzzMail: whatever content is decoded and passes its check, the wire form has
// one final dot, no bare CR or LF, and no header that nobody asked for.
func FuzzMail(f *testing.F) {
	b, _ := full().withASCII().Encode()
	f.Add(b)
	f.Add([]byte(`{"from":{"address":"a@b"},"text":"x","headers":[{"name":"X-A","value":"b"}],"attachments":[{"name":"n","content":""}]}`))
	f.Add([]byte(`{"from":{"address":"a@b","name":"=?utf-8?q?x?="},"html":"\r.\r\n.\n","subject":"\u2028 \u0085"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := Decode(in)
		if err != nil || m.Check(10_000) != nil {
			return
		}
		c := Defaults()
		c.FromAddress = "me@example.com"
		m, err = m.complete(c, delivery.ID{6: 0x70})
		if err != nil {
			return
		}
		data, _, err := m.render(1 << 22)
		if err != nil {
			return
		}
		if n := bytes.Count(data, []byte("\r\n.\r\n")); n != 1 || !bytes.HasSuffix(data, []byte("\r\n.\r\n")) {
			t.Errorf("%d final dots", n)
		}
		if err := checkLines(data); err != nil && !strings.Contains(err.Error(), "more than") {
			t.Error(err)
		}
		msg, err := mail.ReadMessage(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if msg.Header.Get("Bcc") != "" {
			t.Error("a Bcc header")
		}
		if n := len(msg.Header["Message-Id"]); n != 1 {
			t.Errorf("%d Message-IDs", n)
		}
	})
}

// FuzzMailbox: an accepted address fits between angle brackets.
func FuzzMailbox(f *testing.F) {
	f.Add("a@b")
	f.Add(`"a\"b>"@example.com`)
	f.Fuzz(func(t *testing.T, in string) {
		box, err := parseMailbox(in)
		if err != nil {
			return
		}
		if hasControl(box.addr) || len(box.addr) > 400 {
			t.Errorf("%q", box.addr)
		}
		again, err := parseMailbox(box.addr)
		if err != nil || again != box {
			t.Errorf("%q becomes %q, then %q (%v)", in, box.addr, again.addr, err)
		}
	})
}
