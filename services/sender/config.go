package sender

import (
	"errors"
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/quota"
	"github.com/posthouse-io/posthouse/pkg/retry"
	"github.com/posthouse-io/posthouse/pkg/transport/smtp"
)

// Config is everything the sender can be told.
type Config struct {
	daemon.Settings

	Mail      smtp.Config
	RetryMail retry.Config `envPrefix:"RETRY_MAIL_"`
	Quota     quota.Config
	Breaker   breaker.Settings `envPrefix:"CIRCUIT_BREAKER_"`

	RejectedWait time.Duration `env:"RETRY_SCHEDULER_INTERVAL" envDefault:"1m" min:"1ms" max:"1h" doc:"Least wait of a delivery that meets an open circuit breaker after it was claimed."`

	RateLimit   int `env:"MAIL_SERVER_RATE_LIMIT_PER_MINUTE" envDefault:"0" min:"0" doc:"Mails a minute over all instances, at most; a tenth of it may go at once; 0 means no limit."`
	DailyLimit  int `env:"MAIL_SERVER_DAILY_SEND_LIMIT" envDefault:"0" min:"0" doc:"Mails a day (UTC) over all instances, at most; 0 means no limit."`
	MaxInFlight int `env:"MAIL_SERVER_MAX_IN_FLIGHT" envDefault:"0" min:"0" doc:"Mails in work at once over all instances, at most; 0 means no limit beyond that of each instance."`

	MailConcurrency int `env:"MAIL_SEND_CONCURRENCY" envDefault:"4" min:"1" max:"10000" doc:"Mails in work at once, per mail server and instance; stay within the server's limit of connections per account."`

	IntakeBatch      int `env:"INTAKE_BATCH" envDefault:"500" min:"1" max:"1000" doc:"Requests taken into the database in one transaction, at most."`
	IntakeMaxPending int `env:"INTAKE_MAX_PENDING" envDefault:"4096" min:"1" doc:"Requests handed out by the stream and not yet acknowledged, over all instances."`

	Slots    int           `env:"SENDER_SLOTS" envDefault:"256" min:"1" max:"10000" doc:"Deliveries in work at once in one instance, over all lanes."`
	Lease    time.Duration `env:"SENDER_LEASE" envDefault:"15s" min:"1s" max:"10m" doc:"Term of a worker's lease; renewed each third of it."`
	MaxHold  time.Duration `env:"MAX_HOLD" envDefault:"10m" doc:"Longest time one attempt may take; at least the longest time-out of its phases."`
	Poll     time.Duration `env:"SENDER_POLL" envDefault:"500ms" min:"10ms" max:"1m" doc:"How often the queue is looked at while there is work; new work rings a bell before that."`
	IdlePoll time.Duration `env:"SENDER_IDLE_POLL" envDefault:"5s" min:"10ms" max:"10m" doc:"How often it is looked at when there is none."`
}

// Validate finds combinations that are unsafe.
func (c Config) Validate() error {
	var faults []error
	if longest := c.Mail.LongestSend(); c.MaxHold < longest {
		faults = append(faults, fmt.Errorf("MAX_HOLD: %s is less than the mail time-outs add up to; it must be at least %s", c.MaxHold, longest))
	}
	if c.IdlePoll < c.Poll {
		faults = append(faults, fmt.Errorf("SENDER_IDLE_POLL: %s is less than SENDER_POLL (%s)", c.IdlePoll, c.Poll))
	}
	faults = append(append(faults, c.Quota.Check()...), c.Breaker.Check("CIRCUIT_BREAKER_")...)
	return errors.Join(append(faults, c.RetryMail.Check("RETRY_MAIL_"))...)
}
