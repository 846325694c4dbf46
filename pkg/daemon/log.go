package daemon

import (
	"io"
	"os"
	"time"

	"github.com/rs/zerolog"
)

// logTime is RFC 3339 in UTC with milliseconds.
const logTime = "2006-01-02T15:04:05.000Z07:00"

// NewLogger writes lines to w in the format of the settings, each with the time
// (UTC), the service and the instance.
func NewLogger(w io.Writer, s Settings, service, instance string) zerolog.Logger {
	if s.LogFormat == "console" {
		w = zerolog.ConsoleWriter{Out: w, TimeFormat: logTime, TimeLocation: time.UTC, NoColor: !terminal(w)}
	}
	level, err := zerolog.ParseLevel(s.LogLevel)
	if err != nil || s.LogLevel == "" {
		level = zerolog.InfoLevel
	}
	fields := zerolog.New(w).Level(level).Hook(clock{}).With().Str("service", service)
	if instance != "" {
		fields = fields.Str("instance", instance)
	}
	return fields.Logger()
}

// clock stamps lines; zerolog's own format of the time is a global.
type clock struct{}

func (clock) Run(e *zerolog.Event, _ zerolog.Level, _ string) {
	e.Str(zerolog.TimestampFieldName, time.Now().UTC().Format(logTime))
}

func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
