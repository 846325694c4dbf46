package chaos

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"strings"
)

// natsWire sees, on the way up: "ack:requests" and "ack:events" (a message is
// done), "publish:event" and "publish:letter"; on the way down: "deliver:requests",
// "deliver:events", "puback:event" and "puback:letter".
func natsWire(client, server io.Reader) (up, down splitter) {
	return &natsTalk{from: bufio.NewReaderSize(client, 64<<10)}, &natsTalk{from: bufio.NewReaderSize(server, 64<<10)}
}

type natsTalk struct{ from *bufio.Reader }

func (t *natsTalk) next() (piece, error) {
	line, err := t.from.ReadSlice('\n')
	if err != nil {
		return piece{raw: bytes.Clone(line)}, err
	}
	raw := bytes.Clone(line)
	words := strings.Fields(string(line))
	if len(words) == 0 {
		return piece{raw: raw}, nil
	}
	verb := strings.ToUpper(words[0])
	switch verb {
	case "PUB", "HPUB", "MSG", "HMSG":
	default:
		return piece{raw: raw}, nil
	}
	size, err := strconv.Atoi(words[len(words)-1])
	if err != nil || size < 0 || size > maxPiece || len(words) < 3 {
		return piece{raw: raw}, errTooLong
	}
	head := len(raw)
	raw = append(raw, make([]byte, size+2)...)
	if _, err := io.ReadFull(t.from, raw[head:]); err != nil {
		return piece{}, err
	}
	return piece{label: natsLabel(verb, words, raw[head:]), raw: raw}, nil
}

func natsLabel(verb string, words []string, payload []byte) string {
	subject := words[1]
	switch verb {
	case "PUB", "HPUB":
		switch {
		case strings.HasPrefix(subject, "$JS.ACK.") && bytes.HasPrefix(payload, []byte("+ACK")):
			return "ack:" + streamOf(subject)
		case strings.HasPrefix(subject, "posthouse.event.delivery."):
			return "publish:event"
		case strings.HasPrefix(subject, "posthouse.dlq."):
			return "publish:letter"
		}
	default:
		numbers := 1 // MSG subject sid [reply] size; HMSG has two numbers at the end
		if verb == "HMSG" {
			numbers = 2
		}
		switch {
		case len(words) == 4+numbers && strings.HasPrefix(words[3], "$JS.ACK."):
			return "deliver:" + streamOf(words[3])
		case bytes.Contains(payload, []byte(`"stream":"POSTHOUSE_EVENTS"`)):
			return "puback:event"
		case bytes.Contains(payload, []byte(`"stream":"POSTHOUSE_DLQ"`)):
			return "puback:letter"
		}
	}
	return ""
}

// streamOf reads the stream from the subject of an acknowledgement, of either form.
func streamOf(subject string) string {
	switch {
	case strings.Contains(subject, ".POSTHOUSE_REQUESTS."):
		return "requests"
	case strings.Contains(subject, ".POSTHOUSE_EVENTS."):
		return "events"
	}
	return "other"
}
