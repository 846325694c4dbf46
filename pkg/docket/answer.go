package docket

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
)

// AS4 is the channel of the answers.
const AS4 delivery.Channel = "as4"

// answer accepts the delivery that carries an MLS, in the transaction of the move
// that is its occasion. Its request id is the document's, so there is never a second.
func (d *Docket) answer(ctx context.Context, tx pgx.Tx, r *document.MLSRequest) (delivery.ID, outbox.Batch, error) {
	content, err := json.Marshal(r)
	if err != nil {
		return delivery.ID{}, outbox.Batch{}, fmt.Errorf("mls of document %s: %w", r.Document, err)
	}
	a := ledger.Acceptance{ID: delivery.NewID(), Tenant: r.Tenant, Channel: AS4, RequestID: "mls-" + r.Document.String(), BodyHash: sha256.Sum256(content),
		Class: delivery.Transactional, Lane: d.lanes.mls, Prepared: content}
	if r.Receiver != "" {
		a.Recipients = []string{r.Receiver}
	}
	batch, err := d.ledger.AcceptIn(ctx, tx, a)
	return a.ID, batch, err
}
