package retry

import (
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Config is a Policy as settings name it; a service gives it a prefix such as
// RETRY_MAIL_. The defaults are the seed's "Delivery & Retries".
type Config struct {
	MaxRetries        int           `env:"MAX_RETRIES" envDefault:"5" min:"0" max:"1000" doc:"Attempts beyond the first before the delivery is dead."`
	InitialBackoff    time.Duration `env:"INITIAL_BACKOFF" envDefault:"30s" min:"1ms" doc:"Wait before the first retry."`
	BackoffMultiplier float64       `env:"BACKOFF_MULTIPLIER" envDefault:"2" min:"1" doc:"Growth of the wait from one retry to the next."`
	MaxBackoff        time.Duration `env:"MAX_BACKOFF" envDefault:"1h" doc:"Longest wait, before jitter."`
	Jitter            float64       `env:"JITTER" envDefault:"0.5" min:"0" max:"1" doc:"Each wait is spread by plus or minus this share."`
	JitterShape       string        `env:"JITTER_SHAPE" envDefault:"preset" oneof:"preset|fitted" doc:"preset: plus or minus JITTER, as the seed; fitted: full jitter after an outage, equal jitter after a deferral."`
	QuotaFloor        time.Duration `env:"QUOTA_FLOOR" envDefault:"5m" doc:"Least wait after the other side has said that a limit is used up."`
	OnUnknown         string        `env:"ON_UNKNOWN" envDefault:"retry" oneof:"retry|hold" doc:"What follows an attempt of unknown outcome: another attempt, or a person decides."`

	OTP  ClassConfig `envPrefix:"OTP_"`
	Bulk ClassConfig `envPrefix:"BULK_"`
}

// ClassConfig is what the requests of one class have of their own.
type ClassConfig struct {
	MaxRetries     int           `env:"MAX_RETRIES" envDefault:"-1" min:"-1" max:"1000" doc:"The same for requests of this class; -1 is as for all."`
	InitialBackoff time.Duration `env:"INITIAL_BACKOFF" envDefault:"0s" doc:"The same for requests of this class; 0 is as for all."`
	MaxBackoff     time.Duration `env:"MAX_BACKOFF" envDefault:"0s" doc:"The same for requests of this class; 0 is as for all."`
}

// over applies what the class has of its own to the policy for all.
func (c ClassConfig) over(p Policy) Policy {
	if c.MaxRetries >= 0 {
		p.MaxRetries = c.MaxRetries
	}
	if c.InitialBackoff > 0 {
		p.Base = c.InitialBackoff
	}
	if c.MaxBackoff > 0 {
		p.Cap = c.MaxBackoff
	}
	return p
}

// Schedules are what the settings describe.
func (c Config) Schedules() Schedules {
	all := c.Policy()
	return Schedules{Default: all, Class: map[delivery.Class]Policy{delivery.OTP: c.OTP.over(all), delivery.Bulk: c.Bulk.over(all)}}
}

// Policy is the schedule for requests of no class of its own.
func (c Config) Policy() Policy {
	return Policy{Shape: Shape(c.JitterShape), Base: c.InitialBackoff, Multiplier: c.BackoffMultiplier, Cap: c.MaxBackoff, Jitter: c.Jitter, MaxRetries: c.MaxRetries,
		QuotaFloor: c.QuotaFloor, MaxRetryAfter: max(c.MaxBackoff, time.Hour), OnUnknown: OnUnknown(c.OnUnknown)}
}

// Check finds what no single bound can; prefix is that of the variables.
func (c Config) Check(prefix string) error {
	if c.MaxBackoff < c.InitialBackoff {
		return fmt.Errorf("%sMAX_BACKOFF: %s is less than %sINITIAL_BACKOFF (%s)", prefix, c.MaxBackoff, prefix, c.InitialBackoff)
	}
	return nil
}
