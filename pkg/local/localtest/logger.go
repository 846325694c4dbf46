package localtest

import (
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
)

// Logger writes to the test's log, and to nowhere once the test has ended: a
// server's last words after that would make the testing package panic.
func Logger(t testing.TB) zerolog.Logger {
	w := &testWriter{t: t}
	t.Cleanup(w.close)
	return zerolog.New(w).With().Timestamp().Logger()
}

type testWriter struct {
	mu     sync.Mutex
	t      testing.TB
	closed bool
}

func (w *testWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.t.Log(strings.TrimRight(string(p), "\n"))
	}
	return len(p), nil
}

func (w *testWriter) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
}
