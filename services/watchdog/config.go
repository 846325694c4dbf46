package watchdog

import (
	"time"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// Config is everything the watchdog can be told.
type Config struct {
	daemon.Settings

	RetryMail retry.Config  `envPrefix:"RETRY_MAIL_"`
	MaxHold   time.Duration `env:"MAX_HOLD" envDefault:"10m" doc:"Longest time one attempt may take; at least the longest time-out of its phases."`
	Sweep     time.Duration `env:"WATCHDOG_SWEEP" envDefault:"1m" min:"100ms" max:"1h" doc:"How often stuck work is looked for when no lease lapses before."`
}

// Validate finds combinations that are unsafe.
func (c Config) Validate() error { return c.RetryMail.Check("RETRY_MAIL_") }
