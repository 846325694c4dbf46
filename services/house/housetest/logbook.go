package housetest

import (
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"
)

// Logbook keeps what a service writes. Safe for concurrent use.
type Logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends.
func (l *Logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all of it so far.
func (l *Logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Line is the first line with this message, decoded; nil when there is none yet.
func (l *Logbook) Line(message string) map[string]any {
	for line := range strings.Lines(l.String()) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields["message"] == message {
			return fields
		}
	}
	return nil
}

// show tells the end of the log when the test has failed, and finds data races
// of another process.
func (l *Logbook) show(t *testing.T, name string) {
	text := l.String()
	if strings.Contains(text, "WARNING: DATA RACE") {
		t.Errorf("%s: data race", name)
	}
	if !t.Failed() {
		return
	}
	const most = 12 << 10
	if len(text) > most {
		text = text[:most/3] + "\n[...]\n" + text[len(text)-2*most/3:]
	}
	t.Logf("log of %s:\n%s", name, text)
}
