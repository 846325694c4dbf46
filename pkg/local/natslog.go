package local

import (
	"fmt"

	"github.com/rs/zerolog"
)

// natsLog hands the server's warnings and errors to our log. Its notices are a
// page of banner at each start, and are dropped; what it calls fatal ends a
// start, and never the process.
type natsLog struct {
	log   zerolog.Logger
	fatal chan string // the first fatal word; buffered by one
}

func (l *natsLog) Warnf(format string, v ...any)  { l.log.Warn().Msgf("nats: "+format, v...) }
func (l *natsLog) Errorf(format string, v ...any) { l.log.Error().Msgf("nats: "+format, v...) }
func (l *natsLog) Noticef(string, ...any)         {}
func (l *natsLog) Debugf(string, ...any)          {}
func (l *natsLog) Tracef(string, ...any)          {}

func (l *natsLog) Fatalf(format string, v ...any) {
	select {
	case l.fatal <- fmt.Sprintf(format, v...):
	default:
	}
}
