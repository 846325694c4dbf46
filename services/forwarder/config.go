package forwarder

import (
	"errors"
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/forward/all"
	"github.com/posthouse-io/posthouse/pkg/retry"
	"github.com/posthouse-io/posthouse/pkg/verify"
)

// Config is everything the forwarder can be told.
type Config struct {
	daemon.Settings

	Policy     document.Policy
	Duplicates docket.Duplicates
	Forward    all.Config
	Verify     verify.Config
	Schedule   retry.Attempts   `envPrefix:"RETRY_FORWARDING_"`
	Breaker    breaker.Settings `envPrefix:"CIRCUIT_BREAKER_"`

	FetchPrivate bool          `env:"INBOUND_FETCH_ALLOW_PRIVATE" envDefault:"false" doc:"Whether the body of a document may be fetched from private addresses."`
	FetchFor     time.Duration `env:"INBOUND_FETCH_MAX_DURATION" envDefault:"1h" min:"1s" max:"72h" doc:"A document whose body can not be fetched for so long goes to the dead letters."`
	RejectedWait time.Duration `env:"RETRY_SCHEDULER_INTERVAL" envDefault:"1m" min:"1ms" max:"1h" doc:"Least wait of a delivery that meets an open circuit breaker after it was claimed."`
	Concurrency  int           `env:"FORWARDING_CONCURRENCY" envDefault:"8" min:"1" max:"1000" doc:"Documents in work at once in one instance."`
	Lease        time.Duration `env:"SENDER_LEASE" envDefault:"15s" min:"1s" max:"10m" doc:"Term of a worker's lease; renewed each third of it."`
	MaxHold      time.Duration `env:"MAX_HOLD" envDefault:"10m" doc:"Longest time one attempt may take; at least the longest time-out of its phases."`
	Poll         time.Duration `env:"SENDER_POLL" envDefault:"500ms" min:"10ms" max:"1m" doc:"How often the queue is looked at while there is work; new work rings a bell before that."`
	IdlePoll     time.Duration `env:"SENDER_IDLE_POLL" envDefault:"5s" min:"10ms" max:"10m" doc:"How often it is looked at when there is none."`
}

// Validate finds combinations that are unsafe.
func (c Config) Validate() error {
	var faults []error
	if longest := c.Forward.LongestForward(); c.MaxHold < longest {
		faults = append(faults, fmt.Errorf("MAX_HOLD: %s is less than the time-outs of FORWARDING_MODE=%s add up to; it must be at least %s", c.MaxHold, c.Forward.Mode, longest))
	}
	if !c.Forward.Enabled() {
		faults = append(faults, errors.New("FORWARDING_MODE: say how received documents reach the receiver backend (http_post_sync, http_post_async, s3_link, sftp, filesystem, nats)"))
	}
	if longest := c.Verify.LongestAsk(); c.Policy.Verification && c.MaxHold < longest {
		faults = append(faults, fmt.Errorf("MAX_HOLD: %s is less than the verifiers may take (%s)", c.MaxHold, longest))
	}
	faults = append(faults, c.Verify.Required(c.Policy.Verification), c.Schedule.Check("RETRY_FORWARDING_"))
	return errors.Join(append(faults, c.Breaker.Check("CIRCUIT_BREAKER_")...)...)
}
