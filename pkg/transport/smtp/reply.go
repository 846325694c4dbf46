package smtp

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Bounds of one reply, whatever the server would like to send.
const (
	maxReplyLine  = 2048 // bytes with CRLF; four times what RFC 5321 section 4.5.3.1.5 asks for
	maxReplyLines = 128
	maxReplyText  = 8 << 10 // bytes kept
)

// errProtocol is any input that is no reply of SMTP.
var errProtocol = errors.New("the server does not speak SMTP")

// reply is one complete answer of the server (RFC 5321 section 4.2).
type reply struct {
	code     int      // 200 to 599
	enhanced string   // RFC 3463, "" when absent or of another class than the code
	lines    []string // text of each line, without codes
}

func (r reply) text() string   { return strings.Join(r.lines, " ") }
func (r reply) positive() bool { return r.code >= 200 && r.code < 300 }
func (r reply) negative() bool { return r.code >= 400 }

// newReader returns a reader whose buffer is the bound of one line.
func newReader(c interface{ Read([]byte) (int, error) }) *bufio.Reader {
	return bufio.NewReaderSize(c, maxReplyLine)
}

// readReply reads one reply, of one or more lines. An error is errProtocol (what
// came is not a reply) or the reader's own (nothing more will come).
func readReply(r *bufio.Reader) (reply, error) {
	var out reply
	kept := 0
	for n := 0; ; n++ {
		if n == maxReplyLines {
			return reply{}, fmt.Errorf("%w: more than %d lines in one reply", errProtocol, maxReplyLines)
		}
		raw, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return reply{}, fmt.Errorf("%w: a line is longer than %d bytes", errProtocol, maxReplyLine)
		}
		if err != nil {
			return reply{}, err
		}
		code, text, last, ok := parseReplyLine(strings.TrimRight(string(raw), "\r\n"))
		if !ok || n > 0 && code != out.code {
			return reply{}, fmt.Errorf("%w: %.60q", errProtocol, raw)
		}
		out.code = code
		enhanced, text := cutEnhanced(code, text)
		if n == 0 {
			out.enhanced = enhanced
		}
		if kept += len(text); kept <= maxReplyText {
			out.lines = append(out.lines, text)
		}
		if last {
			return out, nil
		}
	}
}

// parseReplyLine takes "250-text", "250 text" or "250" apart.
func parseReplyLine(s string) (code int, text string, last, ok bool) {
	if len(s) < 3 {
		return 0, "", false, false
	}
	for _, c := range []byte(s[:3]) {
		if c < '0' || c > '9' {
			return 0, "", false, false
		}
	}
	code, _ = strconv.Atoi(s[:3])
	if code < 200 || code > 599 {
		return 0, "", false, false
	}
	switch {
	case len(s) == 3:
		return code, "", true, true
	case s[3] == ' ', s[3] == '-':
		return code, s[4:], s[3] == ' ', true
	}
	return 0, "", false, false
}

// cutEnhanced takes the enhanced status code off the front of a line (RFC 2034),
// if it is one and its class is that of the code.
func cutEnhanced(code int, text string) (enhanced, rest string) {
	word, rest, _ := strings.Cut(text, " ")
	if code/100 == 3 || !enhancedCode(word) || word[0] != byte('0'+code/100) {
		return "", text
	}
	return word, rest
}

// enhancedCode tells whether s has the form class.subject.detail of RFC 3463.
func enhancedCode(s string) bool {
	parts := strings.Split(s, ".")
	if len(parts) != 3 || len(parts[0]) != 1 || !strings.Contains("245", parts[0]) {
		return false
	}
	for _, p := range parts[1:] {
		if len(p) < 1 || len(p) > 3 || strings.Trim(p, "0123456789") != "" {
			return false
		}
	}
	return true
}

// answer tells what the reply means at this phase; scrub removes secrets that the
// server may have echoed.
func (r reply) answer(phase delivery.Phase, scrub *strings.Replacer) delivery.Answer {
	text := scrub.Replace(r.text())
	a := delivery.Answer{
		Phase:    phase,
		Code:     strconv.Itoa(r.code),
		Enhanced: r.enhanced,
		Text:     delivery.Bound(text),
	}
	if !r.positive() {
		a.Category = Classify(phase, a.Code, a.Enhanced, text)
	}
	return a
}

// queueID is the server's own name for the message, as the usual servers put it
// into their last reply: "queued as X", "id=X"; "" when there is none.
func (r reply) queueID() string {
	text := r.text()
	low := strings.ToLower(text)
	if len(low) != len(text) { // a letter whose lower case has another length: positions would not agree
		return ""
	}
	for _, mark := range []string{"queued as ", "id="} {
		i := strings.Index(low, mark)
		if i < 0 {
			continue
		}
		id := text[i+len(mark):]
		end := strings.IndexFunc(id, func(c rune) bool {
			return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._-", c)
		})
		if end >= 0 {
			id = id[:end]
		}
		if id != "" && len(id) <= 128 {
			return id
		}
	}
	return ""
}
