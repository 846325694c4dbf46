package clerk

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/verify"
	"github.com/posthouse-io/posthouse/streams"
)

// Verify asks the verifiers about a claimed document and stores what follows.
func (k *Clerk) Verify(ctx context.Context, c docket.Claimed, askers []verify.Asker) {
	results := verify.All(ctx, askers, question(c, k.Docs))
	k.Store(c, nil, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
		return f.Verified(results, k.Policy, now)
	})
}

// question is what the verifiers are asked.
func question(c docket.Claimed, docs *docket.Docket) verify.Document {
	return verify.Document{ID: c.ID, Direction: verify.Inbound, Kind: c.Kind, Tenant: c.Tenant, SBDHInstanceID: c.SBDHInstanceID, SenderID: c.SenderID, ReceiverID: c.ReceiverID,
		DocTypeID: c.DocTypeID, ProcessID: c.ProcessID, C1Country: c.C1Country, Traceparent: c.Trace, ContentType: c.ContentType, Size: c.Size, SHA256: [32]byte(c.Hash), Open: c.Reader(docs)}
}

// Outage raises and clears the one alarm of each verifier.
func Outage(book *ledger.Ledger, hand func(outbox.Batch), log zerolog.Logger) func(context.Context, breaker.Change) {
	return func(ctx context.Context, c breaker.Change) {
		if c.To.State == breaker.HalfOpen {
			return
		}
		alert := delivery.Alert{Name: c.To.Key, State: delivery.AlertRaised, Channel: streams.None, Tenant: streams.None, At: time.Now().UTC(), Text: c.Message}
		if c.To.State == breaker.Closed {
			alert.State, alert.Text = delivery.AlertCleared, "the verifier answers again"
		}
		batch, changed, err := book.Announce(ctx, alert)
		if err != nil {
			log.Warn().Err(err).Str("verifier", c.To.Key).Msg("an alarm could not be stored")
			return
		}
		if changed {
			hand(batch)
			log.Warn().Str("verifier", c.To.Key).Str("state", string(alert.State)).Msg(alert.Text)
		}
	}
}
