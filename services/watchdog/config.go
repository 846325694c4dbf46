package watchdog

import (
	"errors"
	"time"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// Config is everything the watchdog can be told.
type Config struct {
	daemon.Settings

	RetryMail retry.Config `envPrefix:"RETRY_MAIL_"`
	Policy    document.Policy
	Schedule  retry.Attempts `envPrefix:"RETRY_FORWARDING_"`
	MaxHold   time.Duration  `env:"MAX_HOLD" envDefault:"10m" doc:"Longest time one attempt may take; at least the longest time-out of its phases."`
	Sweep     time.Duration  `env:"WATCHDOG_SWEEP" envDefault:"1m" min:"100ms" max:"1h" doc:"How often stuck work is looked for when no lease lapses before."`
	Poison    int            `env:"WATCHDOG_POISON_LIMIT" envDefault:"3" min:"1" max:"1000" doc:"A delivery that is found without its worker so many times in a row is dead (ZOMBIE_POISON): it may be what kills them."`

	DeferMax time.Duration `env:"CIRCUIT_BREAKER_DEFER_MAX_DURATION" envDefault:"12h" min:"1s" doc:"How long after its acceptance a delivery waits for an open breaker without cost; an older one counts it as an attempt."`

	Reconcile  time.Duration `env:"WATCHDOG_RECONCILE" envDefault:"1h" min:"1m" max:"24h" doc:"How often the event stream is compared with the event table; what it lacks is published again."`
	ReplayRate int           `env:"WATCHDOG_REPLAY_RATE" envDefault:"1000" min:"1" max:"100000" doc:"Events per second that are published again, at most."`

	Lag       LagConfig `envPrefix:"WATCHDOG_LAG_"`
	Canary    CanaryConfig
	Retention RetentionConfig
}

// Validate finds combinations that are unsafe.
func (c Config) Validate() error {
	return errors.Join(c.RetryMail.Check("RETRY_MAIL_"), c.Schedule.Check("RETRY_FORWARDING_"))
}
