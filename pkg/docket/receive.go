package docket

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/pinned"
)

// What becomes of a document whose id was seen before (seed:
// duplicate.detection.as4.mode, .sbdh.mode).
const (
	Reject       = "reject"
	StoreAndFlag = "store_and_flag"
)

// Duplicates are the modes for the two ids.
type Duplicates struct {
	AS4  string `env:"DUPLICATE_DETECTION_AS4_MODE" envDefault:"reject" oneof:"reject|store_and_flag" doc:"a document whose AS4 message id was seen before: reject answers with the first, store_and_flag takes it as another"`
	SBDH string `env:"DUPLICATE_DETECTION_SBDH_MODE" envDefault:"reject" oneof:"reject|store_and_flag" doc:"the same for one whose sender has used its SBDH instance id before"`
}

// Reception is a document on its way in.
type Reception struct {
	Tenant string
	In     *document.Inbound
	Body   []byte
	Trace  string
}

// Taken says what became of it.
type Taken struct {
	ID        delivery.ID // of the first of its kind, when it is a repeat
	Fresh     bool
	Repeats   string // as4, sbdh: which id was seen before
	Differs   bool   // it was seen before with other bytes
	Group     claim.Group
	Published outbox.Batch
}

// Receive stores a document with its first decision. A repeat that the modes reject
// gets the first one's id and writes nothing.
func (d *Docket) Receive(ctx context.Context, r Reception, modes Duplicates) (Taken, error) {
	id := delivery.NewID()
	sum := sha256.Sum256(r.Body)
	var t Taken
	err := pinned.Begin(ctx, d.db, "receive document "+id.String(), func(tx pgx.Tx) error {
		t = Taken{ID: id, Fresh: true}
		if err := d.firstSight(ctx, tx, r, id, sum[:], modes, &t); err != nil || !t.Fresh {
			return err
		}
		return d.store(ctx, tx, r, id, sum[:], &t)
	})
	if err != nil && !errors.Is(err, errRepeat) {
		return Taken{}, err
	}
	return t, nil
}

// firstSight claims both ids. The database decides, whoever else is at it.
func (d *Docket) firstSight(ctx context.Context, tx pgx.Tx, r Reception, id delivery.ID, sum []byte, modes Duplicates, t *Taken) error {
	kinds, names := []string{"as4", "sbdh"}, []string{r.Tenant + " " + r.In.AS4MessageID, r.Tenant + " " + r.In.SenderID + " " + r.In.SBDHInstanceID}
	rows, err := tx.Query(ctx, insertKeys, kinds, names, [16]byte(id), sum)
	if err != nil {
		return err
	}
	fresh, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(fresh) == len(kinds) {
		return err
	}
	rows, err = tx.Query(ctx, selectKeys, kinds, names)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var kind string
		var first [16]byte
		var hash []byte
		if err := rows.Scan(&kind, &first, &hash); err != nil {
			return err
		}
		if delivery.ID(first) == id {
			continue
		}
		mode := modes.SBDH
		if kind == "as4" {
			mode = modes.AS4
		}
		if t.Repeats == "" || kind == "as4" {
			t.Repeats = kind
		}
		if mode != StoreAndFlag && t.Fresh {
			t.ID, t.Fresh, t.Differs = first, false, !bytes.Equal(hash, sum)
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if !t.Fresh {
		return errRepeat
	}
	return nil
}

// errRepeat undoes the half of the keys that was fresh.
var errRepeat = errors.New("seen before")

func (d *Docket) store(ctx context.Context, tx pgx.Tx, r Reception, id delivery.ID, sum []byte, t *Taken) error {
	now, err := clock(ctx, tx)
	if err != nil {
		return err
	}
	in := r.In
	f := in.Facts(d.policy)
	f.ID, f.Tenant = id, r.Tenant
	decision, err := f.Receive(d.policy, now)
	if err != nil {
		return err
	}
	contentType := in.ContentType
	if contentType == "" {
		contentType = "application/xml"
	}
	var trace *string
	if delivery.ValidTrace(r.Trace) && r.Trace != "" {
		trace = &r.Trace
	}
	if _, err := tx.Exec(ctx, insertDocument, [16]byte(id), r.Tenant, string(in.Kind), in.SBDHInstanceID, in.AS4MessageID, in.SenderID, in.ReceiverID, in.DocTypeID, in.ProcessID,
		in.C1Country, in.C2SeatID, contentType, in.Reference, t.Repeats, f.ReceivedAt, f.Origin(), int64(len(r.Body)), sum, string(decision.To), string(f.MLSType), in.MLSTo,
		string(decision.MLS.Status), trace); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, insertBody, [16]byte(id), r.Body); err != nil {
		return err
	}
	e, err := document.NewEvent(f, decision, 1, now)
	if err != nil {
		return err
	}
	e.AS4MessageID, e.Duplicate = in.AS4MessageID, t.Repeats
	t.Published.ID = uuid.Must(uuid.NewV7())
	if err := tell(ctx, tx, e, r.Trace, &t.Published); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, outbox.Insert, [16]byte(t.Published.ID), [][16]byte{id}, []int32{1}); err != nil {
		return err
	}
	if decision.Due.IsZero() {
		return nil
	}
	t.Group = claim.Group{Lane: d.lanes.forward, Tenant: r.Tenant, Class: 1}
	_, err = tx.Exec(ctx, enqueue, kindDocuments, [16]byte(id), d.lanes.forward, r.Tenant, decision.Due, 0, 1)
	return err
}

// clock is the database's: decisions are made by one clock.
func clock(ctx context.Context, tx pgx.Tx) (now time.Time, err error) {
	if err := tx.QueryRow(ctx, databaseTime).Scan(&now); err != nil {
		return now, fmt.Errorf("clock: %w", err)
	}
	return now, nil
}
