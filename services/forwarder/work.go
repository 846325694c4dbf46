package forwarder

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/clerk"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/retry"
	"github.com/posthouse-io/posthouse/pkg/verify"
)

// worker takes one step with one claimed document: it is verified, or forwarded.
type worker struct {
	log      zerolog.Logger
	tracer   trace.Tracer
	desk     *clerk.Clerk
	policy   *document.Policy
	schedule retry.Attempts
	askers   []verify.Asker
	forward  forward.Forwarder // nil: none is configured
	breakers *breaker.Set
	maxHold  time.Duration
}

func (w *worker) work(ctx context.Context, c docket.Claimed, lease *claim.Lease) {
	switch {
	case c.NeedsVerification(w.policy):
		asking, cancel := context.WithTimeout(ctx, w.maxHold)
		defer cancel()
		w.desk.Verify(asking, c, w.askers)
	case !c.Forwardable(w.policy):
		w.desk.Store(c, nil, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
			if d, leaves := f.Leave(w.policy); leaves {
				return d, nil
			}
			return document.Decision{}, fmt.Errorf("document %s is in work in state %s: %w", f.ID, f.State, document.ErrState)
		})
	case w.forward == nil:
		w.desk.Store(c, nil, func(f document.Facts, _ int, _ time.Time) (document.Decision, error) { return f.NoForwarder(w.policy) })
	default:
		w.deliver(ctx, c, lease)
	}
}

// deliver makes one attempt to forward.
func (w *worker) deliver(ctx context.Context, c docket.Claimed, lease *claim.Lease) {
	permit, rejected := w.breakers.Acquire(c.Gate.Gate())
	if rejected != nil {
		answer := delivery.Answer{Category: delivery.Transient, Phase: "breaker", Code: "CIRCUIT_OPEN", Text: rejected.Message}
		w.desk.Store(c, &docket.Attempt{Verdict: delivery.Refused, Answer: answer}, func(f document.Facts, failures int, now time.Time) (document.Decision, error) {
			if d, waits := f.Postponed(now.Add(rejected.Delay), w.policy, now); waits {
				return d, nil
			}
			return f.Attempted(document.Attempt{Verdict: delivery.Refused, Answer: answer, Next: w.schedule.Next(failures, answer, 0, now)}, w.policy, now)
		})
		return
	}
	defer func() { _ = permit.Close(w.desk.Storing) }()
	o := w.attempt(ctx, c, lease)
	if err := permit.Done(w.desk.Storing, breaker.Judge(o.Outcome), o.Answer.Code+" "+o.Answer.Text); err != nil {
		w.log.Warn().Err(err).Msg("a change of the forwarder's circuit breaker could not be stored; this instance keeps to it")
	}
	// A refusal that concerns the backend itself (its credentials, its address) says
	// nothing of this document: it waits like after an outage.
	if o.Verdict == delivery.Refused && o.Server && !o.NoRetry && !o.Answer.Category.Retryable() {
		o.Answer.Category = delivery.Transient
	}
	w.desk.Store(c, &docket.Attempt{Verdict: o.Verdict, Answer: o.Answer, Peer: o.Remote, RemoteID: o.RemoteID}, func(f document.Facts, failures int, now time.Time) (document.Decision, error) {
		return f.Attempted(document.Attempt{Verdict: o.Verdict, Answer: o.Answer, Confirmed: o.Confirmed, NoRetry: o.NoRetry, C4Country: o.C4Country,
			Next: w.schedule.Next(failures, o.Answer, o.RetryAfter, now)}, w.policy, now)
	})
}

// attempt hands the document over once. A panic is an outcome that nobody knows.
func (w *worker) attempt(ctx context.Context, c docket.Claimed, lease *claim.Lease) (o forward.Outcome) {
	ctx, cancel := context.WithTimeout(ctx, w.maxHold)
	defer cancel()
	if c.Trace != "" {
		ctx = daemon.Extract(ctx, map[string][]string{"traceparent": {c.Trace}})
	}
	ctx, span := w.tracer.Start(ctx, "forward", trace.WithAttributes(attribute.String("posthouse.document", c.ID.String()), attribute.Int("posthouse.attempt", c.Attempts+1)))
	defer func() {
		if r := recover(); r != nil {
			w.log.Error().Stringer("document", c.ID).Interface("panic", r).Bytes("stack", debug.Stack()).Msg("an attempt panicked")
			o = forward.Outcome{Outcome: delivery.Outcome{Answer: delivery.Answer{Code: "PANIC", Text: delivery.Bound(fmt.Sprint(r))}}}
		}
		span.SetAttributes(attribute.String("posthouse.verdict", o.Verdict.String()))
		span.End()
	}()
	issues, err := json.Marshal(c.Issues)
	if err != nil || len(c.Issues) == 0 {
		issues = nil
	}
	return w.forward.Forward(ctx, forward.Document{ID: c.ID, Tenant: c.Tenant, Attempt: c.Attempts + 1, SBDHInstanceID: c.SBDHInstanceID, AS4MessageID: c.AS4MessageID,
		SenderID: c.SenderID, ReceiverID: c.ReceiverID, DocTypeID: c.DocTypeID, ProcessID: c.ProcessID, C1Country: c.C1Country, ReceivedAt: c.ReceivedAt,
		Verdict: string(c.Verdict), Issues: issues, Traceparent: c.Trace, ContentType: c.ContentType, Size: c.Size, SHA256: [32]byte(c.Hash), Open: c.Reader(w.desk.Docs), Proceed: lease.Proceed})
}
