package ledger

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/claim"
)

// Content is what preparing a request has given.
type Content struct {
	Prepared   []byte
	Recipients []string // envelope addresses by ordinal
	Lane       int32    // where it is to be sent
}

// Prepare stores the content of a claimed delivery that was not prepared before
// and gives it to its real lane, ready. It is no change of state: no version, no
// event, no attempt. False: the row has moved on since it was claimed (or an
// earlier call, whose answer was lost, has done it), and nothing was written.
func (l *Ledger) Prepare(ctx context.Context, c Claimed, content Content) (stored bool, err error) {
	id := [16]byte(c.ID)
	err = l.begin(ctx, "prepare "+c.ID.String(), func(tx pgx.Tx) error {
		stored = false
		tag, err := tx.Exec(ctx, routePrepared, id, c.Fence, c.Version, [16]byte(c.Worker), content.Lane)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		stored = true
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
	return stored, err
}

// GroupIn is where a delivery is found that was claimed from another lane.
func (c Claimed) GroupIn(lane int32) claim.Group {
	return claim.Group{Lane: lane, Tenant: c.Tenant, Class: int16(c.Class)}
}
