package breaker

import (
	"fmt"
	"time"
)

// Settings are those of the seed, section "Circuit Breakers", with its defaults.
// They are read when a destination is first seen; Reset applies changed ones.
type Settings struct {
	Threshold  int           `env:"FAILURE_THRESHOLD" envDefault:"5" min:"1" max:"100000" doc:"Failures before a circuit breaker opens: in a row, unless one of the next two settings gives a window."`
	Executions int           `env:"FAILURE_EXECUTIONS" envDefault:"0" min:"0" max:"100000" doc:"Sends over which the failures are counted; with a period, the least number of sends in it. 0 means unset."`
	Period     time.Duration `env:"FAILURE_PERIOD" envDefault:"0s" min:"0s" max:"24h" doc:"Rolling time over which the failures are counted; 0s means unset."`
	Rate       int           `env:"FAILURE_RATE" envDefault:"0" min:"0" max:"100" doc:"Share of failures in percent at which it opens, instead of their number; 0 means unset."`
	OpenFor    time.Duration `env:"OPEN_DURATION" envDefault:"1m" min:"100ms" max:"24h" doc:"How long a circuit breaker stays open before the destination is probed."`
	Probes     int           `env:"HALF_OPEN_MAX_ATTEMPTS" envDefault:"1" min:"1" max:"1000" doc:"Sends that probe it then, over all instances; all must succeed."`
	DeferMax   time.Duration `env:"DEFER_MAX_DURATION" envDefault:"12h" min:"1s" doc:"How long after its acceptance a delivery waits for an open breaker without cost; an older one counts it as an attempt."`
	OnAuth     string        `env:"ON_AUTH" envDefault:"fail" oneof:"fail|park" doc:"What refused credentials mean: fail ends each delivery (the seed), park opens the breaker at once and keeps them."`

	MinRejected time.Duration `env:"-"` // least wait of a delivery that met an open breaker after it had been claimed: the seed's scheduler interval
}

// parks tells whether a result opens the lane at once and for good reason: nothing
// will be taken until somebody mends the credentials.
func (s Settings) parks(r Result) bool { return r == Refusal && s.OnAuth == "park" }

// Check names every wrong value and combination; prefix is that of the variables.
func (s Settings) Check(prefix string) []error {
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf(prefix+name+": "+format, args...))
	}
	atLeast := func(name string, value, least any, wrong bool) {
		if wrong {
			fault(name, "%v is less than %v", value, least)
		}
	}
	atLeast("FAILURE_THRESHOLD", s.Threshold, 1, s.Threshold < 1)
	atLeast("FAILURE_EXECUTIONS", s.Executions, 0, s.Executions < 0)
	// The window has ten parts of at least a millisecond.
	atLeast("FAILURE_PERIOD", s.Period, 10*time.Millisecond, s.Period != 0 && s.Period < 10*time.Millisecond)
	atLeast("OPEN_DURATION", s.OpenFor, 100*time.Millisecond, s.OpenFor < 100*time.Millisecond)
	atLeast("HALF_OPEN_MAX_ATTEMPTS", s.Probes, 1, s.Probes < 1)
	if s.Rate < 0 || s.Rate > 100 {
		fault("FAILURE_RATE", "%d is not a share in percent (1 to 100, 0 for none)", s.Rate)
	}
	if s.OnAuth != "fail" && s.OnAuth != "park" {
		fault("ON_AUTH", "%.20q is neither fail nor park", s.OnAuth)
	}
	switch {
	case s.Rate > 0 && s.Executions == 0:
		fault("FAILURE_RATE", "needs FAILURE_EXECUTIONS, the least number of sends that a share is taken of")
	case s.Rate > 0 && s.Period == 0:
		fault("FAILURE_RATE", "needs FAILURE_PERIOD, the time over which the share is taken")
	case s.Rate == 0 && s.Executions > 0 && s.Executions < s.Threshold:
		fault("FAILURE_EXECUTIONS", "%d sends can not hold %d failures (FAILURE_THRESHOLD)", s.Executions, s.Threshold)
	}
	return faults
}
