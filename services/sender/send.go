package sender

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/retry"
	"github.com/posthouse-io/posthouse/pkg/settle"
	"github.com/posthouse-io/posthouse/pkg/transport"
)

// sender works on claimed deliveries: one attempt each.
type sender struct {
	log     zerolog.Logger
	tracer  trace.Tracer
	mail    transport.Transport
	policy  retry.Schedules
	settler *settle.Settler
	storing context.Context // bounds the storing of results, which outlives the work
	maxHold time.Duration
	count   counters
	late    latePreparer
	protect *protection
}

// work makes one attempt and stores what follows. It returns when that is
// stored: only then is the slot free.
func (s *sender) work(ctx context.Context, c ledger.Claimed, lease *claim.Lease) {
	if c.Expired {
		s.store(ledger.Settlement{Claimed: c, Cause: "expires_at", Decision: retry.Decision{State: delivery.Expired,
			Answer: delivery.Answer{Code: "EXPIRED", Text: "expires_at has passed"}}})
		return
	}
	if c.Channel != delivery.Mail { // a lane that rests until there is a way was resumed
		s.store(ledger.Settlement{Claimed: c, Cause: "no transport", Decision: retry.Decision{GiveBack: true, Delay: time.Minute,
			Answer: delivery.Answer{Category: delivery.Config, Phase: "transport", Code: "NO_TRANSPORT", Text: "this version cannot send over channel " + string(c.Channel) + ": pause its lane"}}})
		return
	}
	if !c.IsPrepared {
		s.late.prepare(s, c)
		return
	}
	past := retry.Past{Retries: c.Retries, Accepted: c.Accepted, Waiting: make([]int, len(c.Recipients))}
	for i, r := range c.Recipients {
		past.Waiting[i] = r.Ordinal
	}
	policy := s.policy.For(c.Class)
	permit, rejected := s.protect.breakers.Acquire(s.protect.gate(c).Gate())
	if rejected != nil {
		s.store(s.protect.refused(s.storing, c, rejected, policy, past))
		return
	}
	defer func() { // whatever unwinds this, the lane hears of it: a permit that nobody used counts as a failure
		if err := permit.Close(s.storing); err != nil {
			s.log.Warn().Err(err).Str("lane", c.Gate.Key).Msg("a change of its circuit breaker could not be stored; this sender keeps to it")
		}
	}()
	outcome := s.attempt(ctx, c, lease)
	// The lane hears of it before the row is let go: until then the row is the permit.
	park := s.protect.tell(s.storing, permit, c, outcome)
	if park {
		s.store(ledger.Settlement{Claimed: c, Cause: "credentials refused", Decision: retry.Decision{GiveBack: true, Delay: s.protect.settings.OpenFor, Answer: outcome.Answer}})
		return
	}
	s.store(ledger.Settlement{Claimed: c, Decision: policy.Decide(outcome, past, rand.Float64()), Verdict: outcome.Verdict, Attempt: true,
		Cause: "attempt", Peer: outcome.Remote, RemoteID: delivery.Bound(outcome.RemoteID)})
}

// attempt sends once. A panic is an outcome that nobody knows.
func (s *sender) attempt(ctx context.Context, c ledger.Claimed, lease *claim.Lease) (outcome delivery.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, s.maxHold)
	defer cancel()
	if c.Trace != "" {
		ctx = daemon.Extract(ctx, map[string][]string{"traceparent": {c.Trace}})
	}
	ctx, span := s.tracer.Start(ctx, "attempt", trace.WithAttributes(attribute.String("posthouse.delivery", c.ID.String()),
		attribute.String("posthouse.channel", string(c.Channel)), attribute.Int("posthouse.attempt", c.Attempts+1)))
	defer func() {
		if r := recover(); r != nil {
			s.log.Error().Stringer("delivery", c.ID).Interface("panic", r).Bytes("stack", debug.Stack()).Msg("an attempt panicked")
			outcome = delivery.Outcome{Answer: delivery.Answer{Code: "PANIC", Text: delivery.Bound(fmt.Sprint(r))}}
		}
		outcome = discreet(outcome)
		span.SetAttributes(attribute.String("posthouse.verdict", outcome.Verdict.String()))
		span.End()
	}()
	return s.mail.Send(ctx, transport.Message{ID: c.ID, Tenant: c.Tenant, Attempt: c.Attempts + 1, Recipients: c.Recipients, Content: c.Prepared,
		Proceed: func() error { return errors.Join(lease.Proceed(), s.settler.Healthy()) }})
}

// store hands the result to the settler and tells of it in one line.
func (s *sender) store(result ledger.Settlement) {
	if err := s.settler.Settle(s.storing, result); err != nil {
		s.log.Error().Err(err).Stringer("delivery", result.Claimed.ID).Str("verdict", result.Verdict.String()).
			Msg("the result could not be stored; the attempt will be found as unknown")
		return
	}
	d := result.Decision
	var line *zerolog.Event
	switch {
	case d.GiveBack:
		line = s.log.Info()
	case d.State == delivery.Retry:
		line = s.log.Warn()
	case d.State == delivery.Sent:
		line = s.log.Debug()
	default:
		line = s.log.Error()
	}
	state := string(d.State)
	if d.GiveBack {
		state = "given back"
	}
	if result.Attempt {
		line = line.Int("attempt", result.Claimed.Attempts+1).Str("verdict", result.Verdict.String())
	}
	line.Stringer("delivery", result.Claimed.ID).Str("tenant", result.Claimed.Tenant).Str("channel", string(result.Claimed.Channel)).Str("state", state).Dur("delay", d.Delay).
		Str("category", string(d.Answer.Category)).Str("phase", string(d.Answer.Phase)).Str("code", d.Answer.Code).Str("enhanced", d.Answer.Enhanced).
		Str("text", d.Answer.Text).Str("trace", result.Claimed.Trace).Msg(result.Cause)
	s.count.settled(s.storing, result)
}
