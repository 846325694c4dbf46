package sender

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/retry"
	"github.com/posthouse-io/posthouse/streams"
)

// protection stands between a claimed delivery and its destination, and tells the
// lane what the destination answered.
type protection struct {
	log      zerolog.Logger
	settings breaker.Settings
	breakers *breaker.Set
	lanes    *lane.Lanes
	book     *ledger.Ledger
	hand     func(outbox.Batch)
	wake     func()
	count    counters
	slots    int // of a lane, in this instance
	mailLane lane.View

	mu   sync.Mutex
	ease map[int32]*easing
}

// easing counts successes since a lane was slowed or last raised.
type easing struct {
	version   int32
	successes int
}

// start makes the registry; call it once, before the first delivery.
func (p *protection) start() {
	p.ease = make(map[int32]*easing)
	p.breakers = breaker.New(p.settings, lane.Store{Lanes: p.lanes}, p.changed)
}

// gate is the lane as the claim saw it; what was handed over was not claimed, and
// its lane was open.
func (p *protection) gate(c ledger.Claimed) lane.View {
	if c.Gate.Key == "" && c.Lane == p.mailLane.ID {
		return p.mailLane
	}
	return c.Gate
}

// changed tells of a breaker that this instance has turned: once in the log, once
// in the metrics; the lane's event is out already.
func (p *protection) changed(ctx context.Context, c breaker.Change) {
	p.count.turned(ctx, c)
	if c.To.State == breaker.Open {
		p.log.Warn().Str("lane", c.To.Key).Str("state", string(c.To.State)).Int("failures", c.To.Failures).Str("cause", c.To.Cause).Msg(c.Message)
		return
	}
	p.log.Info().Str("lane", c.To.Key).Str("state", string(c.To.State)).Msg("circuit breaker " + string(c.To.State))
	if c.To.State == breaker.Closed {
		p.wake()
	}
}

// halfOpen lets a lane be probed whose open time is over.
func (p *protection) halfOpen(ctx context.Context, id int32) error {
	v, changed, err := p.lanes.HalfOpen(ctx, id)
	if changed {
		from := v.Gate()
		from.State = breaker.Open
		p.changed(ctx, breaker.Change{From: from, To: v.Gate()})
	}
	return err
}

// refused is what follows when the breaker has opened since the claim: the delivery
// goes back, and no attempt is counted, as long as it is young enough.
func (p *protection) refused(ctx context.Context, c ledger.Claimed, r *breaker.Rejection, policy retry.Policy, past retry.Past) ledger.Settlement {
	p.count.rejected(ctx, r.Gate)
	answer := delivery.Answer{Category: delivery.Transient, Phase: "breaker", Code: "CIRCUIT_OPEN", Text: delivery.Bound(r.Message)}
	s := ledger.Settlement{Claimed: c, Cause: "breaker", Decision: retry.Decision{GiveBack: true, Delay: r.Delay, Answer: answer}}
	if time.Since(c.ID.Time()) > p.settings.DeferMax {
		s.Attempt, s.Verdict = true, delivery.Refused
		s.Decision = policy.Decide(delivery.Outcome{Verdict: delivery.Refused, Answer: answer}, past, rand.Float64())
	}
	return s
}

// tell says what an attempt has shown of its destination. It tells whether the
// delivery is to be kept although its answer is final: the credentials are refused,
// and that is nobody's fault but ours.
func (p *protection) tell(ctx context.Context, permit *breaker.Permit, c ledger.Claimed, o delivery.Outcome) (park bool) {
	result, cause := breaker.Judge(o), o.Answer.Code+" "+o.Answer.Text
	if err := permit.Done(ctx, result, cause); err != nil {
		p.log.Warn().Err(err).Str("lane", c.Gate.Key).Msg("a change of its circuit breaker could not be stored; this sender keeps to it")
	}
	gate := p.gate(c)
	switch result {
	case breaker.Throttle:
		v, changed, err := p.lanes.Slow(ctx, c.Lane, cause)
		p.turned(v, changed, err, "slowed: the other side throttles")
	case breaker.Success:
		if p.due(gate) {
			v, changed, err := p.lanes.Relieve(ctx, c.Lane, gate.Version, p.slots)
			p.turned(v, changed, err, "raised again")
		}
	case breaker.Refusal:
		if p.settings.OnAuth == "park" {
			p.alert(ctx, gate.Key, delivery.AlertRaised, "the credentials of "+gate.Key+" are refused; what waits for it is kept")
			return true
		}
	}
	if gate.Breaker == lane.HalfOpen && result == breaker.Success {
		p.alert(ctx, gate.Key, delivery.AlertCleared, "the credentials of "+gate.Key+" are accepted")
	}
	return false
}

func (p *protection) turned(v lane.View, changed bool, err error, what string) {
	switch {
	case err != nil:
		p.log.Warn().Err(err).Msg("the caps of a lane could not be changed")
	case changed:
		p.log.Info().Str("lane", v.Key).Int("cap", v.Cap).Int("rate_cap", v.RateCap).Msg("lane " + what)
	}
}

// due tells whether a slowed lane has seen enough successes to be raised: as many
// as it may have in work, or send in ten seconds.
func (p *protection) due(g lane.View) bool {
	if !g.Slowed() {
		return false
	}
	enough := max(g.Cap, g.RateCap/6, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.ease[g.ID]
	if e == nil || e.version != g.Version {
		e = &easing{version: g.Version}
		p.ease[g.ID] = e
	}
	if e.successes++; e.successes < enough {
		return false
	}
	delete(p.ease, g.ID)
	return true
}

// alert raises or clears the one alarm about a lane's credentials.
func (p *protection) alert(ctx context.Context, key string, state delivery.AlertState, text string) {
	batch, changed, err := p.book.Announce(ctx, delivery.Alert{Name: fmt.Sprintf("credentials-%s", key), State: state, Channel: string(delivery.Mail), Tenant: streams.None,
		At: time.Now().UTC(), Text: text})
	switch {
	case err != nil:
		p.log.Warn().Err(err).Msg("an alarm could not be stored")
	case changed:
		p.hand(batch)
		p.log.Error().Str("alarm", "credentials").Str("state", string(state)).Msg(text)
	}
}
