package chaos

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"sync"
)

// smtpWire sees, on the way up: "hello", "data" (the command), "dot" (the end of
// the message); on the way down: "greeting", "go" (354) and "taken" (the reply to
// the dot).
func smtpWire(client, server io.Reader) (up, down splitter) {
	t := &smtpTalk{}
	return &smtpUp{talk: t, from: bufio.NewReaderSize(client, 64<<10)}, &smtpDown{talk: t, from: bufio.NewReaderSize(server, 64<<10)}
}

// smtpTalk is where one dialogue stands. The server's 354 passes here before the
// client can know of it, so the content is recognised when it comes.
type smtpTalk struct {
	mu      sync.Mutex
	content bool // the client writes the message
	dotted  bool // its end has gone up
	greeted bool
}

type smtpUp struct {
	talk *smtpTalk
	from *bufio.Reader
}

func (u *smtpUp) next() (piece, error) {
	line, err := u.from.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		err = nil // a part of a long line
	}
	m := piece{raw: bytes.Clone(line)}
	u.talk.mu.Lock()
	defer u.talk.mu.Unlock()
	switch command := strings.ToUpper(strings.TrimSpace(string(line))); {
	case u.talk.content && string(line) == ".\r\n":
		u.talk.content, u.talk.dotted = false, true
		m.label = "dot"
	case u.talk.content:
	case command == "DATA":
		m.label = "data"
	case strings.HasPrefix(command, "EHLO"), strings.HasPrefix(command, "HELO"):
		m.label = "hello"
	}
	return m, err
}

type smtpDown struct {
	talk *smtpTalk
	from *bufio.Reader
}

func (d *smtpDown) next() (piece, error) {
	line, err := d.from.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		err = nil
	}
	m := piece{raw: bytes.Clone(line)}
	d.talk.mu.Lock()
	defer d.talk.mu.Unlock()
	last := len(line) >= 4 && line[3] == ' '
	switch {
	case !last:
	case !d.talk.greeted:
		d.talk.greeted = true
		m.label = "greeting"
	case d.talk.dotted:
		d.talk.dotted = false
		m.label = "taken"
	case bytes.HasPrefix(line, []byte("354")):
		d.talk.content = true
		m.label = "go"
	}
	return m, err
}
