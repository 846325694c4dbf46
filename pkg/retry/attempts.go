package retry

import (
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Attempts is a schedule as the seed "Retry and Resilience Patterns" names it: so
// many attempts in all, growing waits, no jitter. The defaults are those of
// retry.forwarding.*.
type Attempts struct {
	Max        int           `env:"MAX_ATTEMPTS" envDefault:"3" min:"1" max:"1000" doc:"Attempts in all before it is dead."`
	Initial    time.Duration `env:"INITIAL_BACKOFF" envDefault:"1m" min:"1ms" doc:"Wait before the second attempt."`
	Multiplier float64       `env:"BACKOFF_MULTIPLIER" envDefault:"2" min:"1" doc:"Growth of the wait from one attempt to the next."`
	MaxBackoff time.Duration `env:"MAX_BACKOFF" envDefault:"1h" doc:"Longest wait."`
}

// Next is when the attempt after one failure more is due, given how many have
// failed before; the zero time: never. What the other side asks for is honoured up
// to an hour.
func (a Attempts) Next(failures int, answer delivery.Answer, retryAfter time.Duration, now time.Time) time.Time {
	if failures+1 >= a.Max {
		return time.Time{}
	}
	p := Policy{Base: a.Initial, Multiplier: a.Multiplier, Cap: a.MaxBackoff, MaxRetryAfter: max(a.MaxBackoff, time.Hour)}
	return now.Add(p.Delay(failures, answer, retryAfter, 0.5))
}

// Check finds what no single bound can; prefix is that of the variables.
func (a Attempts) Check(prefix string) error {
	if a.MaxBackoff < a.Initial {
		return fmt.Errorf("%sMAX_BACKOFF: %s is less than %sINITIAL_BACKOFF (%s)", prefix, a.MaxBackoff, prefix, a.Initial)
	}
	return nil
}
