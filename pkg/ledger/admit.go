package ledger

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/quota"
)

// UseQuotas says what is charged; without it nothing is. notice is called with
// what is to be published of them, after the commit. Set it before the first use.
func (l *Ledger) UseQuotas(cfg quota.Config, notice func(outbox.Batch)) {
	l.quotas, l.notice, l.charging = cfg, notice, true
}

func (l *Ledger) bucket(tenant string, channel delivery.Channel) quota.Key {
	return quota.Key{Bucket: l.quotas.Bucket(tenant), Channel: channel}
}

// admit shares what was granted among the fresh requests, in the order in which
// they came. What is left over becomes failed with its marker, or waits on the lane
// "prepare", whose id it answers with. The charge was made for all requests of the
// batch; what was granted for repeats goes back.
func (l *Ledger) admit(ctx context.Context, tx pgx.Tx, charge *quota.Charge, fresh []Acceptance, notices *outbox.Batch) (prepare int32, err error) {
	used := make(map[quota.Key]int64)
	waits := false
	for i := range fresh {
		r := &fresh[i]
		k := l.bucket(r.Tenant, r.Channel)
		g := charge.Grant(k)
		if r.Failure != nil || g == nil {
			continue
		}
		if used[k] < g.Granted {
			used[k]++
			continue
		}
		r.Hand = false
		if !g.Hold {
			r.Failure, r.Prepared = g.Answer(), nil
			continue
		}
		r.waits, r.Prepared, waits = g.Answer(), nil, true
		if r.SendAt == nil || r.SendAt.Before(g.Turn) {
			turn := g.Turn
			r.SendAt = &turn
		}
	}
	var b pgx.Batch
	charge.Refund(&b, used)
	if *notices, err = charge.Tell(&b); err != nil {
		return 0, err
	}
	if b.Len() > 0 {
		if err := tx.SendBatch(ctx, &b).Close(); err != nil {
			return 0, err
		}
	}
	if waits {
		return lane.ID(ctx, tx, PrepareLane, "delivery")
	}
	return 0, nil
}

// refundAll gives back a charge of which nothing was needed.
func (l *Ledger) refundAll(ctx context.Context, tx pgx.Tx, charge *quota.Charge) error {
	var b pgx.Batch
	charge.Refund(&b, nil)
	if b.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, &b).Close()
}
