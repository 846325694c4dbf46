package watchdog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/streams"
)

// LagConfig says from where on lag is an alarm; 0 switches one off. Each is cleared
// at half of its threshold.
type LagConfig struct {
	Check        time.Duration `env:"CHECK" envDefault:"15s" min:"1s" max:"10m" doc:"How often lag is measured."`
	Outbox       time.Duration `env:"OUTBOX" envDefault:"1m" min:"0s" doc:"Alarm when an event waits so long to be published; stay below half of the event stream's duplicate window (10m)."`
	Ready        time.Duration `env:"READY" envDefault:"5m" min:"0s" doc:"Alarm when a delivery of an open lane waits so long for a slot."`
	Consumer     time.Duration `env:"CONSUMER" envDefault:"30s" min:"0s" doc:"Alarm when a service's consumer has messages and makes no progress for so long."`
	Transaction  time.Duration `env:"TRANSACTION" envDefault:"5m" min:"0s" doc:"Alarm when a transaction of this database is so old: dead rows stay while it lasts, and claims slow down."`
	Transactions int           `env:"TRANSACTIONS" envDefault:"1000000" min:"0" doc:"Alarm when a session, a standby, a prepared transaction or a replication slot holds a snapshot so many transactions old."`
	DeadRows     int           `env:"DEAD_ROWS" envDefault:"100000" min:"0" doc:"Alarm when the queue has so many dead rows that vacuum could not remove."`
}

// durables are the consumers that services keep. Those of readers are their own
// affair.
func durables() []string {
	return []string{"sender", "forwarder", "verifier-retry", "watchdog", "dead-letter", "gateway"}
}

// checkLag measures everything once.
func (w *watchdog) checkLag(ctx context.Context) error {
	lag, err := w.book.Lag(ctx)
	if err != nil {
		return err
	}
	readings := w.lagReadings(lag)
	infos, err := w.consumers(ctx)
	if err == nil {
		readings = append(readings, w.pulse.look(time.Now(), infos, w.cfg.Lag.Consumer)...)
		readings = append(readings, w.vanished(lag.Alarms, readings)...)
	}
	return errors.Join(err, w.announce(ctx, lag.Alarms, readings))
}

func (w *watchdog) lagReadings(g ledger.Lag) []reading {
	cfg := w.cfg.Lag
	outbox := fmt.Sprintf("the oldest unpublished event has waited %.0f s", g.Outbox)
	if g.OutboxTries > 0 {
		outbox += fmt.Sprintf("; the stream has refused it %d times", g.OutboxTries)
	}
	ready := reading{name: "ready_wait", value: g.Ready, threshold: cfg.Ready.Seconds(), unit: "seconds",
		text: fmt.Sprintf("a delivery has waited %.0f s for a slot, in lane %s, tenant %s", g.Ready, g.ReadyLane, g.ReadyTenant)}
	if g.Waiting > g.Ready {
		ready.value, ready.text = g.Waiting, fmt.Sprintf("a delivery is due for %.0f s and nobody has looked: does a sender run?", g.Waiting)
	}
	if ready.value == 0 {
		ready.text = "no delivery waits for a slot"
	}
	return []reading{
		{name: "outbox_age", value: g.Outbox, threshold: cfg.Outbox.Seconds(), unit: "seconds", text: outbox},
		ready,
		{name: "old_transaction", value: g.Oldest, threshold: cfg.Transaction.Seconds(), unit: "seconds",
			text: fmt.Sprintf("the oldest transaction is %.0f s old: %s", g.Oldest, orNobody(g.OldestWhat))},
		{name: "old_snapshot", value: g.Pinned, threshold: float64(cfg.Transactions), unit: "transactions",
			text: fmt.Sprintf("the oldest snapshot is %.0f transactions old: %s", g.Pinned, orNobody(g.PinnedWhat))},
		{name: "dead_rows", value: g.Dead, threshold: float64(cfg.DeadRows), unit: "rows",
			text: fmt.Sprintf("the queue has %.0f dead rows", g.Dead)},
	}
}

func orNobody(what string) string {
	if what == "" {
		return "none"
	}
	return what
}

// consumers lists the services' consumers of our streams.
func (w *watchdog) consumers(ctx context.Context) ([]*jetstream.ConsumerInfo, error) {
	var all []*jetstream.ConsumerInfo
	for _, name := range []string{streams.Requests, streams.Events, streams.DeadLetter, streams.Advisories} {
		s, err := w.js.Stream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("look at stream %s: %w", name, err)
		}
		list := s.ListConsumers(ctx)
		for info := range list.Info() {
			if slices.Contains(durables(), info.Config.Durable) {
				all = append(all, info)
			}
		}
		if err := list.Err(); err != nil {
			return nil, fmt.Errorf("list consumers of %s: %w", name, err)
		}
	}
	return all, nil
}

// vanished clears the alarms of consumers that are no longer there.
func (w *watchdog) vanished(alarms []delivery.Alarm, readings []reading) []reading {
	var gone []reading
	for _, a := range alarms {
		if a.Raised && isConsumerAlarm(a.Name) && !slices.ContainsFunc(readings, func(r reading) bool { return r.name == a.Name }) {
			gone = append(gone, reading{name: a.Name, threshold: w.cfg.Lag.Consumer.Seconds(), unit: "seconds", text: "the consumer is no longer there"})
		}
	}
	return gone
}
