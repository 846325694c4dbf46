package daemon

import (
	"regexp"
	"sync"

	"github.com/rs/zerolog"
)

// teller logs the state of something that is tried again and again: a line when
// it changes, none when it does not. Safe for concurrent use.
type teller struct {
	log  zerolog.Logger
	mu   sync.Mutex
	last string // the trouble that was told; "" is well
}

func newTeller(log zerolog.Logger) *teller { return &teller{log: log} }

// digits differ from try to try (a local port, a duration) without news in them.
var digits = regexp.MustCompile(`\d+`)

// tell takes the result of one try of what, which lives at where.
func (t *teller) tell(what, where string, err error) {
	trouble := ""
	if err != nil {
		trouble = digits.ReplaceAllString(err.Error(), "#")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if trouble == t.last {
		return
	}
	t.last = trouble
	if err != nil {
		t.log.Warn().Str("for", what).Str("at", where).Err(err).Msg("waiting")
		return
	}
	t.log.Info().Str("for", what).Str("at", where).Msg("there again")
}
