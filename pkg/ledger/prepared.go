package ledger

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/quota"
)

// Content is what preparing a request has given.
type Content struct {
	Prepared   []byte
	Recipients []string // envelope addresses by ordinal
	Lane       int32    // where it is to be sent
}

// Prepared says what became of one call of Prepare.
type Prepared struct {
	Stored bool         // false: the row has moved on since it was claimed (or an earlier call, whose answer was lost, has done it)
	Denied *quota.Grant // not nil: its quota is used up; nothing was written
}

// Prepare charges the quota of a claimed delivery that was not prepared before,
// stores its content and gives it to its real lane, ready. It is no change of
// state: no version, no event, no attempt.
func (l *Ledger) Prepare(ctx context.Context, c Claimed, content Content) (done Prepared, err error) {
	id := [16]byte(c.ID)
	var notices outbox.Batch
	err = l.begin(ctx, "prepare "+c.ID.String(), func(tx pgx.Tx) error {
		done, notices = Prepared{}, outbox.Batch{}
		tag, err := tx.Exec(ctx, routePrepared, id, c.Fence, c.Version, [16]byte(c.Worker), content.Lane)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		done.Stored = true
		if l.charging {
			var g *quota.Grant
			if g, notices, err = quota.One(ctx, tx, l.quotas, l.bucket(c.Tenant, c.Channel)); err != nil {
				return err
			}
			if g.Granted == 0 {
				done = Prepared{Denied: g}
				return errDenied
			}
		}
		named, ordinals, addresses := make([][16]byte, len(content.Recipients)), make([]int16, len(content.Recipients)), make([]string, len(content.Recipients))
		for i, address := range content.Recipients {
			named[i], ordinals[i], addresses[i] = id, int16(i), storable(address)
		}
		var p pgx.Batch
		p.Queue(markPrepared, id, content.Lane)
		p.Queue(putContent, id, content.Prepared)
		p.Queue(deleteRecipients, id)
		p.Queue(insertRecipients, named, ordinals, addresses)
		return tx.SendBatch(ctx, &p).Close()
	})
	if errors.Is(err, errDenied) {
		return done, nil
	}
	if err == nil && len(notices.Messages) > 0 {
		l.notice(notices)
	}
	return done, err
}

// errDenied undoes what a denied delivery has begun.
var errDenied = errors.New("its quota is used up")

// GroupIn is where a delivery is found that was claimed from another lane.
func (c Claimed) GroupIn(lane int32) claim.Group {
	return claim.Group{Lane: lane, Tenant: c.Tenant, Class: int16(c.Class)}
}
