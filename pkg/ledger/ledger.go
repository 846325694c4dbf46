package ledger

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/pinned"
	"github.com/posthouse-io/posthouse/pkg/queue"
	"github.com/posthouse-io/posthouse/pkg/quota"
)

// Ledger writes to one database.
type Ledger struct {
	db       *pgxpool.Pool
	ready    func(...claim.Group)
	charging bool
	quotas   quota.Config
	notice   func(outbox.Batch)

	queue               *queue.Queue
	claiming, deferring string
}

// New opens the book on a migrated database.
func New(db *pgxpool.Pool) *Ledger {
	q := queue.New(db, queue.Deliveries)
	return &Ledger{db: db, ready: func(...claim.Group) {}, queue: q, claiming: q.Claiming(taken), deferring: q.Deferring(takenBare)}
}

// ErrNotFound says that there is no such delivery (or none of this tenant).
var ErrNotFound = errors.New("no such delivery")

// pipeline is a pinned one, under the name that this room uses.
type pipeline = pinned.Pipeline

func newPipeline() *pipeline { return pinned.New() }

func (l *Ledger) run(ctx context.Context, p *pipeline) error { return p.Run(ctx, l.db) }

func (l *Ledger) insist(ctx context.Context, fill func(*pipeline)) error {
	return pinned.Insist(ctx, l.db, fill)
}

func (l *Ledger) begin(ctx context.Context, what string, body func(pgx.Tx) error) error {
	return pinned.Begin(ctx, l.db, what, body)
}

// ids converts to the array type that pgx takes for uuid[].
func ids[T ~[16]byte](in []T) [][16]byte {
	out := make([][16]byte, len(in))
	for i, id := range in {
		out[i] = id
	}
	return out
}

// Refused tells an error that speaks about the content (data, constraint,
// statement), which no repeat will mend, from trouble that one may.
func Refused(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) != 5 {
		return false
	}
	switch pg.Code[:2] {
	case "21", "22", "23", "42":
		return pg.Code != "42P01" && pg.Code != "42703" // a table or column that a migration is about to bring
	}
	return false
}

// OnReady has f called with the groups in which a settled delivery has made
// blocked work ready, after the commit: nobody need poll for it. Set it before
// the first use.
func (l *Ledger) OnReady(f func(...claim.Group)) { l.ready = f }

// noPartition tells a row whose month has no partition yet: an id minted by a
// clock that runs ahead or behind.
func noPartition(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23514" && pg.ConstraintName == ""
}

// newBatchID names an outbox row.
func newBatchID() uuid.UUID { return uuid.Must(uuid.NewV7()) }
