package bench

import (
	"context"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/transport"
	"github.com/posthouse-io/posthouse/services/sender"
	"github.com/posthouse-io/posthouse/streams"
)

// Fairness: how long a send of tenant B takes, and of tenant A's backlog.
const (
	laneSlots  = 16
	normalSend = 10 * time.Millisecond
	slowSend   = 250 * time.Millisecond
	slowName   = "slow"
)

// fairness measures how long tenant B's requests take to be served, from the
// publication to the event (95th percentile, milliseconds), while tenant A has a
// backlog of the given size: half of it on a lane that is slow, half on B's own
// lane. All slots of that lane are A's then, so a request waits at least for one
// of them: one turn is one send more.
func (s *servers) fairness(ctx context.Context, p Plan, backlog int) (p95 float64, err error) {
	err = s.on(ctx, ground{}, func(ctx context.Context, at *site) error {
		slow, err := at.book.Lane(ctx, lane(slowName), string(streams.KindDelivery))
		if err != nil {
			return err
		}
		if err := at.accept(ctx, bunch{"a", slow, slowName, backlog / 2}, bunch{"a", at.lane, "r", backlog - backlog/2}); err != nil {
			return err
		}
		if err := at.rest(ctx); err != nil {
			return err
		}
		warm := p.FairRate
		t := newTraces(p.FairRows + warm)
		takes := func(m transport.Message) time.Duration {
			if strings.HasPrefix(m.Recipients[0].Address, slowName) {
				return slowSend
			}
			return normalSend
		}
		err = at.sending(ctx, &way{seen: t.seen, takes: takes}, func(ctx context.Context) error { return at.publish(ctx, t, "b", p.FairRate) },
			func(cfg *sender.Config) { cfg.MailConcurrency, cfg.ShutdownTimeout = laneSlots, time.Second })
		p95 = quantile(between(t.published, t.event, warm), 0.95)
		return err
	})
	return p95, err
}
