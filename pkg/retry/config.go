package retry

import (
	"fmt"
	"time"
)

// Config is a Policy as settings name it; a service gives it a prefix such as
// RETRY_MAIL_. The defaults are the seed's "Delivery & Retries".
type Config struct {
	MaxRetries        int           `env:"MAX_RETRIES" envDefault:"5" min:"0" max:"1000" doc:"Attempts beyond the first before the delivery is dead."`
	InitialBackoff    time.Duration `env:"INITIAL_BACKOFF" envDefault:"30s" min:"1ms" doc:"Wait before the first retry."`
	BackoffMultiplier float64       `env:"BACKOFF_MULTIPLIER" envDefault:"2" min:"1" doc:"Growth of the wait from one retry to the next."`
	MaxBackoff        time.Duration `env:"MAX_BACKOFF" envDefault:"1h" doc:"Longest wait, before jitter."`
	Jitter            float64       `env:"JITTER" envDefault:"0.5" min:"0" max:"1" doc:"Each wait is spread by plus or minus this share."`
	QuotaFloor        time.Duration `env:"QUOTA_FLOOR" envDefault:"5m" doc:"Least wait after the other side has said that a limit is used up."`
	OnUnknown         string        `env:"ON_UNKNOWN" envDefault:"retry" oneof:"retry|hold" doc:"What follows an attempt of unknown outcome: another attempt, or a person decides."`
}

// Policy is the schedule that the settings describe.
func (c Config) Policy() Policy {
	return Policy{Base: c.InitialBackoff, Multiplier: c.BackoffMultiplier, Cap: c.MaxBackoff, Jitter: c.Jitter, MaxRetries: c.MaxRetries,
		QuotaFloor: c.QuotaFloor, MaxRetryAfter: max(c.MaxBackoff, time.Hour), OnUnknown: OnUnknown(c.OnUnknown)}
}

// Check finds what no single bound can; prefix is that of the variables.
func (c Config) Check(prefix string) error {
	if c.MaxBackoff < c.InitialBackoff {
		return fmt.Errorf("%sMAX_BACKOFF: %s is less than %sINITIAL_BACKOFF (%s)", prefix, c.MaxBackoff, prefix, c.InitialBackoff)
	}
	return nil
}
