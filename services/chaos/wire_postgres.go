package chaos

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"sync"
)

// statements names what our programs do in the database by words of its SQL. A
// statement that is worded anew is not found any more; the run says so, since its
// trap then never springs. Where several run in one transaction the first counts.
func statements() []struct{ words, name string } {
	return []struct{ words, name string }{
		{"INSERT INTO request_key", "accept"},
		{"SET state = 'leased'", "claim"},
		{"DELETE FROM queue q USING x", "settle"},
		{"INSERT INTO dead_letter", "archive"},
		{"DELETE FROM outbox", "remove"},
		{"UPDATE worker SET lease_until", "renew"},
	}
}

// pgTalk is one connection. What commits is the Sync that ends a pipeline, or the
// word itself where a transaction was begun: "<name>:commit" on the way up, and
// "<name>:done" on the answer that says so.
type pgTalk struct {
	mu       sync.Mutex
	prepared map[string]string // statement to name
	begun    bool              // a transaction of several round trips
	pending  string            // name of what runs before the next commit
	waiting  []string          // names of Syncs that are not answered yet
}

func postgresWire(client, server io.Reader) (up, down splitter) {
	t := &pgTalk{prepared: map[string]string{}}
	return &pgUp{talk: t, from: bufio.NewReaderSize(client, 64<<10), first: true}, &pgDown{talk: t, from: bufio.NewReaderSize(server, 64<<10)}
}

type pgUp struct {
	talk  *pgTalk
	from  *bufio.Reader
	first bool // the start-up message has no type byte
}

func (u *pgUp) next() (piece, error) {
	if u.first {
		u.first = false
		raw, err := pgMessage(u.from, 0)
		if err != nil {
			return piece{}, err
		}
		return piece{raw: raw}, nil
	}
	raw, err := pgMessage(u.from, 1)
	if err != nil {
		return piece{}, err
	}
	return piece{label: u.talk.said(raw[0], raw[5:]), raw: raw}, nil
}

// pgMessage reads one message: head bytes of type, then a length that counts itself.
func pgMessage(r *bufio.Reader, head int) ([]byte, error) {
	start, err := r.Peek(head + 4)
	if err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(start[head:]))
	if length < 4 || length > maxPiece {
		return nil, errTooLong
	}
	raw := make([]byte, head+length)
	_, err = io.ReadFull(r, raw)
	return raw, err
}

func (t *pgTalk) said(kind byte, body []byte) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch kind {
	case 'P': // Parse: name, text
		name, rest, _ := bytes.Cut(body, []byte{0})
		text, _, _ := bytes.Cut(rest, []byte{0})
		if len(t.prepared) < 4096 {
			t.prepared[string(name)] = statement(string(text))
		}
	case 'B': // Bind: portal, statement
		_, rest, _ := bytes.Cut(body, []byte{0})
		name, _, _ := bytes.Cut(rest, []byte{0})
		return t.runs(t.prepared[string(name)])
	case 'Q': // a simple query runs and ends by itself
		text, _, _ := bytes.Cut(body, []byte{0})
		switch word := strings.ToLower(string(text)); {
		case strings.HasPrefix(word, "begin"):
			t.begun, t.pending = true, ""
			t.waiting = append(t.waiting, "")
		case word == "commit":
			t.begun = false
			return t.commits()
		case word == "rollback":
			t.begun, t.pending = false, ""
			t.waiting = append(t.waiting, "")
		default:
			t.waiting = append(t.waiting, "")
			return t.runs(statement(string(text)))
		}
	case 'S':
		if !t.begun {
			return t.commits()
		}
		t.waiting = append(t.waiting, "")
	}
	return ""
}

func (t *pgTalk) commits() string {
	name := t.pending
	t.pending, t.waiting = "", append(t.waiting, name)
	if name == "" {
		return ""
	}
	return name + ":commit"
}

func (t *pgTalk) runs(name string) string {
	if t.pending == "" {
		t.pending = name
	}
	return name
}

func statement(text string) string {
	for _, s := range statements() {
		if strings.Contains(text, s.words) {
			return s.name
		}
	}
	return ""
}

type pgDown struct {
	talk *pgTalk
	from *bufio.Reader
}

func (d *pgDown) next() (piece, error) {
	raw, err := pgMessage(d.from, 1)
	if err != nil {
		return piece{}, err
	}
	if raw[0] != 'Z' { // ReadyForQuery answers each Sync
		return piece{raw: raw}, nil
	}
	d.talk.mu.Lock()
	defer d.talk.mu.Unlock()
	if len(d.talk.waiting) == 0 { // the one that follows the log-in
		return piece{raw: raw}, nil
	}
	name := d.talk.waiting[0]
	d.talk.waiting = d.talk.waiting[1:]
	if name != "" {
		name += ":done"
	}
	return piece{label: name, raw: raw}, nil
}
