package docket

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/pinned"
)

// Bounds of one answer.
const (
	MaxLines  = 500     // of a list
	MaxOffset = 100_000 // what a list may skip
	MaxFacts  = 100_000 // exchanges of a service level report
)

// ErrTooMany says that a period holds more than one answer may.
var ErrTooMany = errors.New("the period holds too many documents; ask for a shorter one")

// clockSkew is how much later than its id a document's AS4 time stamp may lie.
const clockSkew = time.Hour

// Line is one document in a list.
type Line struct {
	ID             delivery.ID        `json:"id"`
	Tenant         string             `json:"tenant"`
	Kind           document.Kind      `json:"document_kind"`
	SBDHInstanceID string             `json:"sbdh_instance_id"`
	AS4MessageID   string             `json:"as4_message_id"`
	SenderID       string             `json:"sender_id"`
	ReceiverID     string             `json:"receiver_id"`
	State          document.State     `json:"state"` // forwarding: in work just now
	Attempts       int                `json:"attempts"`
	Verdict        document.Verdict   `json:"verdict,omitempty"`
	C4Country      string             `json:"c4_country,omitempty"`
	MLSStatus      document.MLSStatus `json:"mls_status,omitempty"`
	MLSCode        document.Code      `json:"mls_code,omitempty"`
	Duplicate      string             `json:"duplicate,omitempty"`
	ReceivedAt     time.Time          `json:"received_at"`
	AS4At          time.Time          `json:"as4_timestamp"`
	ChangedAt      time.Time          `json:"changed_at"`
	DueAt          *time.Time         `json:"due_at,omitempty"` // next attempt; of a missing answer: its deadline
	Size           int64              `json:"size"`
}

// Page is a part of a list, the newest first.
type Page struct {
	Tenant string    // empty is all
	From   time.Time // only documents stored since then; zero is all
	Limit  int       // 1 to MaxLines
	Offset int       // 0 to MaxOffset
}

// Resolve finds a document by its own id or by an SBDH instance id (the newest that
// has it), among those of a tenant when one is given.
func (d *Docket) Resolve(ctx context.Context, tenant, name string) (delivery.ID, error) {
	if !utf8.ValidString(name+tenant) || strings.ContainsRune(name+tenant, 0) {
		return delivery.ID{}, ErrNotFound // what the book cannot hold, it cannot have
	}
	own, err := delivery.ParseID(name)
	if err != nil {
		own = delivery.ID{}
	}
	var id [16]byte
	err = d.db.QueryRow(ctx, resolve, name, tenant, [16]byte(own)).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return delivery.ID{}, ErrNotFound
	}
	if err != nil {
		return delivery.ID{}, fmt.Errorf("find document: %w", err)
	}
	return id, nil
}

// Payload is a document as it was received, with what it said it is.
type Payload struct {
	ContentType string
	SHA256      []byte
	Body        []byte
}

// Payload reads a document with its bytes.
func (d *Docket) Payload(ctx context.Context, id delivery.ID) (Payload, error) {
	var p Payload
	err := d.db.QueryRow(ctx, selectPayload, [16]byte(id)).Scan(&p.ContentType, &p.SHA256, &p.Body)
	if errors.Is(err, pgx.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return Payload{}, fmt.Errorf("payload of document %s: %w", id, err)
	}
	return p, nil
}

// InProcessing lists what is in the queue.
func (d *Docket) InProcessing(ctx context.Context, p Page) ([]Line, error) {
	return d.list(ctx, "documents in processing", listProcessing, p)
}

// History lists what has ended.
func (d *Docket) History(ctx context.Context, p Page) ([]Line, error) {
	return d.list(ctx, "history of documents", listHistory, p)
}

// MissingC4 lists forwarded documents whose receiver's country nobody has told.
func (d *Docket) MissingC4(ctx context.Context, p Page) ([]Line, error) {
	return d.list(ctx, "documents without the country of C4", listMissingC4, p)
}

// MissingMLS lists forwarded documents whose sender still waits for an answer.
func (d *Docket) MissingMLS(ctx context.Context, p Page) ([]Line, error) {
	return d.list(ctx, "documents without an answer", listMissingMLS, p)
}

func (d *Docket) list(ctx context.Context, what, sql string, p Page) ([]Line, error) {
	lines := []Line{}
	q := pinned.New()
	q.Query(sql, func(rows pgx.Rows) error {
		var l Line
		var id [16]byte
		var leased bool
		err := rows.Scan(&id, &l.Tenant, &l.Kind, &l.SBDHInstanceID, &l.AS4MessageID, &l.SenderID, &l.ReceiverID, &l.State, &l.Attempts, &l.Verdict, &l.C4Country,
			&l.MLSStatus, &l.MLSCode, &l.Duplicate, &l.ReceivedAt, &l.AS4At, &l.ChangedAt, &l.Size, &l.DueAt, &leased)
		if l.ID = id; leased {
			l.State, l.DueAt = document.Forwarding, nil
		}
		lines = append(lines, l)
		return err
	}, p.Tenant, floor(p.From), min(max(p.Limit, 1), MaxLines), min(max(p.Offset, 0), MaxOffset))
	if err := q.Run(ctx, d.db); err != nil {
		return nil, fmt.Errorf("list %s: %w", what, err)
	}
	return lines, nil
}

// AnswerFacts are what MLS-1 is measured by, of documents with an AS4 time stamp in
// [from, to), and the time of the database. ErrTooMany when there are more than
// MaxFacts. As long as nothing carries an answer, none has an end.
func (d *Docket) AnswerFacts(ctx context.Context, tenant string, from, to time.Time) (facts []document.SLAFact, now time.Time, err error) {
	p := pinned.New()
	p.Query(databaseTime, func(rows pgx.Rows) error { return rows.Scan(&now) })
	p.Query(answerFacts, func(rows pgx.Rows) error {
		var f document.SLAFact
		var end *time.Time
		err := rows.Scan(&f.SBDHInstanceID, &f.Start, &end)
		if end != nil {
			f.End = *end
		}
		facts = append(facts, f)
		return err
	}, tenant, floor(from.Add(-clockSkew)), from, to, MaxFacts+1)
	if err := p.Run(ctx, d.db); err != nil {
		return nil, now, fmt.Errorf("facts of the service level: %w", err)
	}
	if len(facts) > MaxFacts {
		return nil, now, ErrTooMany
	}
	return facts, now, nil
}

// floor is the least id of a moment (RFC 9562 5.7: the first 48 bits are its
// milliseconds).
func floor(at time.Time) (id [16]byte) {
	if ms := at.UnixMilli(); ms > 0 && !at.IsZero() {
		var wide [8]byte
		binary.BigEndian.PutUint64(wide[:], uint64(ms)<<16)
		copy(id[:], wide[:6])
	}
	return id
}
