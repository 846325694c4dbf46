package watchdog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// canaryTenant is a tenant of its own: a filter by tenant takes the canaries out of
// everybody's figures, and no quota of a user's is touched.
const canaryTenant = "canary"

const (
	canaryDuty  = "canary"
	canaryTerm  = 30 * time.Second
	canaryAlarm = "canary_late"
	canaryLook  = 5 * time.Second
)

// CanaryConfig says whether and how the whole pipe is tried.
type CanaryConfig struct {
	Address string        `env:"WATCHDOG_CANARY" doc:"Mail address to which a small mail is sent through the whole pipe each minute; empty is off. Its tenant is canary."`
	Every   time.Duration `env:"WATCHDOG_CANARY_EVERY" envDefault:"1m" min:"1s" doc:"How often."`
	Late    time.Duration `env:"WATCHDOG_CANARY_LATE" envDefault:"30s" min:"1s" doc:"Alarm when its final event takes longer, or is not sent."`
}

// canary sends one request as any application would and waits for its final event.
// It is the only test that finds every way to be stuck. Only one is out at a time:
// while it is late no other follows, so that a dead mail server collects no flock.
func (w *watchdog) canary(ctx context.Context) error {
	duty, err := w.book.TakeDuty(ctx, canaryDuty, w.instance, canaryTerm, w.cfg.Canary.Every)
	if err != nil || duty == nil {
		return err
	}
	result, err := w.fly(ctx, func() error { return duty.Renew(ctx) })
	if err != nil {
		return joinEnd(ctx, duty, nil, fmt.Errorf("canary: %w", err))
	}
	return joinEnd(ctx, duty, result, nil)
}

// flight is the result of one canary.
type flight struct {
	RequestID string         `json:"request_id"`
	State     delivery.State `json:"state"`
	Seconds   float64        `json:"seconds"`
}

func (w *watchdog) fly(ctx context.Context, alive func() error) (*flight, error) {
	c, err := client.New(w.nats, "")
	if err != nil {
		return nil, err
	}
	// Watched from a little before: the clock of the stream is another.
	id, began := "canary-"+delivery.NewID().String(), time.Now()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	final := make(chan delivery.State, 1)
	watched := make(chan error, 1)
	go func() {
		watched <- c.Watch(watching, client.Filter{Tenant: canaryTenant, Since: began.Add(-clockSkew)}, func(ev *delivery.Event) error {
			if ev.RequestID == id && ev.State.Final() {
				select {
				case final <- ev.State:
				default:
				}
			}
			return nil
		})
	}()
	defer func() { stop(); <-watched }()
	publish, cancel := context.WithTimeout(ctx, w.cfg.Canary.Late)
	defer cancel()
	err = c.Send(publish, delivery.Mail, canaryTenant, delivery.Request{ID: id, MailRequest: delivery.MailRequest{
		To: []string{w.cfg.Canary.Address}, Subject: "Posthouse canary", Text: "This mail shows that the pipe is open. Nobody need read it."}})
	if err != nil {
		return nil, errors.Join(err, w.sing(ctx, time.Since(began), "its request cannot be published"))
	}
	look := time.NewTicker(min(canaryLook, w.cfg.Canary.Late))
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case err := <-watched:
			watched <- err
			return nil, errors.Join(errors.New("its events cannot be watched"), err)
		case state := <-final:
			took := time.Since(began)
			w.count.canary.Record(ctx, took.Seconds())
			why := ""
			if state != delivery.Sent {
				why = "it ended as " + string(state)
			}
			return &flight{RequestID: id, State: state, Seconds: took.Seconds()}, w.sing(ctx, took, why)
		case <-look.C:
			if err := alive(); err != nil {
				return nil, err
			}
			if took := time.Since(began); took >= w.cfg.Canary.Late {
				if err := w.sing(ctx, took, fmt.Sprintf("request %s has no final event", id)); err != nil {
					w.log.Warn().Err(err).Msg("the canary's alarm could not be raised")
				}
			}
		}
	}
}

// sing raises or clears the canary's alarm. Another threshold than time: what did
// not arrive is late however fast it ended.
func (w *watchdog) sing(ctx context.Context, took time.Duration, why string) error {
	alarms, err := w.book.Alarms(ctx)
	if err != nil {
		return err
	}
	late := w.cfg.Canary.Late.Seconds()
	r := reading{name: canaryAlarm, value: took.Seconds(), threshold: late, unit: "seconds", text: fmt.Sprintf("the canary took %.1f s", took.Seconds())}
	switch {
	case why != "":
		w.count.canaries.Add(ctx, 1)
		r.value, r.text = max(r.value, late), fmt.Sprintf("the canary is late after %.1f s: %s", took.Seconds(), why)
	case took.Seconds() < late: // it came in time: no need to wait for half of that
		r.value = min(r.value, late/2)
	}
	return w.announce(ctx, alarms, []reading{r})
}
