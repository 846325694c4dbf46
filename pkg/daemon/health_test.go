package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// A check that hangs, even one that ignores its context, costs one goroutine
// and no more than its bound, however often it is asked.
func TestHealthCheckThatHangs(t *testing.T) {
	t.Parallel()
	h, release, runs := newHealth(), make(chan struct{}), make(chan struct{}, 10)
	ended := make(chan struct{})
	h.enter(phaseReady)
	h.Add("stuck", func(context.Context) error {
		defer close(ended) // panics when it runs twice
		runs <- struct{}{}
		<-release
		return nil
	})
	h.Add("well", func(context.Context) error { return nil })
	for range 2 {
		start := time.Now()
		report := h.Report(t.Context())
		if took := time.Since(start); took > checkTimeout+3*time.Second {
			t.Errorf("took %s", took)
		}
		if report.Status != phaseFailing || report.Checks["stuck"].OK || !report.Checks["well"].OK {
			t.Errorf("%+v", report)
		}
	}
	if len(runs) != 1 {
		t.Errorf("%d runs of a check that hangs", len(runs))
	}
	close(release)
	<-ended
}

func TestHealthAnswersOnlyGet(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	newHealth().Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "POST", "/readyz", nil))
	if w.Code != 405 {
		t.Errorf("POST /readyz: %d", w.Code)
	}
}

func TestLogger(t *testing.T) {
	t.Parallel()
	var out output
	log := NewLogger(&out, Settings{LogLevel: "warn", LogFormat: "json"}, "probe", "host-1-a")
	log.Info().Msg("not written")
	log.Warn().Any("key", NewSecret("hunter2secret")).Msg("written")
	var line struct{ Time, Level, Service, Instance, Message, Key string }
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	stamp, err := time.Parse(logTime, line.Time)
	if err != nil || stamp.Location() != time.UTC || !strings.HasSuffix(line.Time, "Z") || len(line.Time) != len("2006-01-02T15:04:05.000Z") {
		t.Errorf("time %q: %v", line.Time, err)
	}
	if line.Service != "probe" || line.Instance != "host-1-a" || line.Level != "warn" || line.Message != "written" || line.Key != redacted {
		t.Errorf("%+v", line)
	}
	var console output
	shown := NewLogger(&console, Settings{LogFormat: "console"}, "probe", "")
	shown.Info().Msg("for people")
	if !strings.Contains(console.String(), "for people") || strings.Contains(console.String(), "{") || strings.Contains(console.String(), "\x1b") {
		t.Errorf("%q", console.String())
	}
}

func TestTellerTellsChanges(t *testing.T) {
	t.Parallel()
	var out output
	told := newTeller(zerolog.New(&out))
	told.tell("db", "h", nil) // well from the start: nothing to tell
	for _, port := range []string{"1", "22", "333"} {
		told.tell("db", "h", errors.New("read 127.0.0.1:"+port+": refused"))
	}
	told.tell("db", "h", errors.New("no schema"))
	told.tell("db", "h", nil)
	told.tell("db", "h", nil)
	if lines := out.count("\n"); lines != 3 {
		t.Errorf("%d lines, want 3:\n%s", lines, out.String())
	}
}
