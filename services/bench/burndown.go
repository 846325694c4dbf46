package bench

import (
	"context"
	"time"
)

// burn is what one burn-down, or one run end to end, showed, each figure by
// delivery where its name does not say otherwise.
type burn struct {
	perSecond  float64
	cpu        CPU
	statements *float64
	wal        float64 // bytes
	foreign    float64 // cores
}

// burndown sends rows that wait already, each with its attempt row, its event and
// an acknowledged publication. It counts from the start of the sender until the
// last event is acknowledged and the outbox is empty.
func (s *servers) burndown(ctx context.Context, rows int, lazySync bool) (b burn, err error) {
	template, err := s.loaded(ctx, rows)
	if err != nil {
		return b, err
	}
	err = s.on(ctx, ground{template: template, lazySync: lazySync}, func(ctx context.Context, at *site) (err error) {
		b, err = at.burn(ctx, rows, rows)
		return err
	})
	return b, err
}

// endToEnd lets requests that wait in the stream go the whole way: intake, row,
// send, settle, and two events each.
func (s *servers) endToEnd(ctx context.Context, requests int) (b burn, err error) {
	dir, err := s.filled(ctx, requests)
	if err != nil {
		return b, err
	}
	err = s.on(ctx, ground{natsDir: dir}, func(ctx context.Context, at *site) (err error) {
		b, err = at.burn(ctx, requests, 2*requests)
		return err
	})
	return b, err
}

// burn runs a sender until n messages are sent and the given number of events is
// published.
func (at *site) burn(ctx context.Context, n, events int) (b burn, err error) {
	out := noop(n)
	m, err := at.begin(ctx)
	if err != nil {
		return b, err
	}
	err = at.sending(ctx, out, func(ctx context.Context) error {
		if err := out.all(ctx); err != nil {
			return err
		}
		if err := at.drained(ctx, events); err != nil {
			return err
		}
		b, err = m.end(ctx, n)
		return err
	})
	return b, err
}

// meter reads all accounts at the start and at the end of a run.
type meter struct {
	at         *site
	usage      usage
	statements float64
	counted    bool
	wal        float64
}

func (at *site) begin(ctx context.Context) (m meter, err error) {
	m.at = at
	if m.statements, m.counted, err = at.servers.statements(ctx, at.database); err != nil {
		return m, err
	}
	if m.wal, err = at.servers.wal(ctx); err != nil {
		return m, err
	}
	m.usage = readUsage(at.servers.postgres.PID(), at.nats.PID())
	return m, nil
}

func (m meter) end(ctx context.Context, n int) (burn, error) {
	now := readUsage(m.at.servers.postgres.PID(), m.at.nats.PID())
	took := now.at.Sub(m.usage.at)
	b := burn{perSecond: float64(n) / took.Seconds()}
	if used := now.since(m.usage); used.postgresKnown {
		b.cpu, b.foreign = newCPU(used, n), used.foreign(took)
	}
	statements, counted, err := m.at.servers.statements(ctx, m.at.database)
	if err != nil {
		return b, err
	}
	if counted && m.counted {
		b.statements = figure((statements - m.statements) / float64(n))
	}
	wal, err := m.at.servers.wal(ctx)
	b.wal = (wal - m.wal) / float64(n)
	return b, err
}

func newCPU(used usage, n int) CPU {
	each := func(seconds float64) *float64 { return figure(seconds * 1e6 / float64(n)) }
	return CPU{Go: each(used.self), PG: each(used.postgres), NATS: each(used.child), Sum: each(used.self + used.postgres + used.child)}
}

// perSecond is a rate.
func perSecond(n int, began time.Time) float64 { return float64(n) / time.Since(began).Seconds() }
