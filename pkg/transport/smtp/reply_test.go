package smtp

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

func TestReadReply(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in       string
		code     int
		enhanced string
		text     string
		err      error
	}{
		{"250 2.1.0 Ok\r\n", 250, "2.1.0", "Ok", nil},
		{"250\r\n", 250, "", "", nil},
		{"250 \n", 250, "", "", nil},
		{"250-2.0.0 one\r\n250 2.0.0 two\r\n", 250, "2.0.0", "one two", nil},
		{"550 5.1.1\r\n", 550, "5.1.1", "", nil},
		{"550 4.1.1 class differs\r\n", 550, "", "4.1.1 class differs", nil},
		{"550 5.1.1.1 no\r\n", 550, "", "5.1.1.1 no", nil},
		{"354 3.0.0 go\r\n", 354, "", "3.0.0 go", nil},
		{"250-a\r\n251 b\r\n", 0, "", "", errProtocol},
		{"25 no\r\n", 0, "", "", errProtocol},
		{"2500 no\r\n", 0, "", "", errProtocol},
		{"199 no\r\n", 0, "", "", errProtocol},
		{"600 no\r\n", 0, "", "", errProtocol},
		{"HTTP/1.1 400 Bad Request\r\n", 0, "", "", errProtocol},
		{"\r\n", 0, "", "", errProtocol},
		{"\x00\x00\x00\n", 0, "", "", errProtocol},
		{"250 never ends", 0, "", "", io.EOF},
		{"250-", 0, "", "", io.EOF},
		{"250 " + strings.Repeat("x", 1<<20), 0, "", "", errProtocol},
		{strings.Repeat("250-x\r\n", 100_000), 0, "", "", errProtocol},
	} {
		got, err := readReply(newReader(strings.NewReader(c.in)))
		if !errors.Is(err, c.err) || got.code != c.code || got.enhanced != c.enhanced || got.text() != c.text {
			t.Errorf("%.40q: %+v, %v", c.in, got, err)
		}
	}
}

func TestQueueID(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Ok: queued as 4XyZ12abc":               "4XyZ12abc",
		"Ok: Queued As <A-1.b_2>":               "",
		"OK id=1rABCD-000123-Xy":                "1rABCD-000123-Xy",
		"OK: queued":                            "",
		"queued as " + strings.Repeat("x", 200): "",
		"İ queued as abc":                       "",
	} {
		if got := (reply{lines: []string{text}}).queueID(); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// FuzzReply: whatever a server sends, a reply is bounded, has a legal code, and
// makes an answer that can be stored.
func FuzzReply(f *testing.F) {
	for _, s := range []string{"250 ok\r\n", "250-a\r\n250 b\r\n", "550 5.1.1 no\r\n", "\x00", "250-2.0.0 \xff\r\n250 x\r\n", "999 x\n", "250 queued as İ"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		rep, err := readReply(bufio.NewReaderSize(strings.NewReader(string(in)), maxReplyLine))
		if err != nil {
			return
		}
		if rep.code < 200 || rep.code > 599 || len(rep.lines) > maxReplyLines || len(rep.text()) > maxReplyText+maxReplyLines {
			t.Fatalf("%+v", rep)
		}
		a := rep.answer(PhaseRcpt, strings.NewReplacer())
		if len(a.Text) > delivery.MaxText || strings.ContainsAny(a.Text, "\r\n\x00") {
			t.Errorf("%q", a.Text)
		}
		if rep.negative() && a.Category == delivery.NoCategory {
			t.Error("a refusal without a category")
		}
		if len(rep.queueID()) > 128 {
			t.Error("a name beyond its bound")
		}
	})
}
