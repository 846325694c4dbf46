package chaos

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/streams"
)

// Witness asks everybody: call it when all is quiet, or when it never will be.
func (s *Site) Witness(ctx context.Context, rules Rules, published []Publication) (*History, error) {
	h := &History{Rules: rules, Published: published, Samples: s.sampler.all()}
	var err error
	if h.Book, err = s.book(ctx); err != nil {
		return h, err
	}
	if h.Told, err = s.told(ctx, streams.Events); err != nil {
		return h, err
	}
	if h.Letters, err = s.told(ctx, streams.DeadLetter); err != nil {
		return h, err
	}
	if h.Taken, err = s.taken(); err != nil {
		return h, err
	}
	h.Leaks, err = s.leaks(rules.Marker)
	return h, err
}

// book reads the database in one snapshot. Columns are listed, so that it reads
// earlier and later schemas too.
func (s *Site) book(ctx context.Context) (b Book, err error) {
	tx, err := s.DB.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return b, fmt.Errorf("read the book: %w", err)
	}
	defer func() { err = errors.Join(err, tx.Rollback(context.WithoutCancel(ctx))) }()
	ask := func(sql string, scan func(pgx.Rows) error) {
		if err != nil {
			return
		}
		rows, e := tx.Query(ctx, sql)
		if e != nil {
			err = fmt.Errorf("read the book: %w", e)
			return
		}
		defer rows.Close()
		for rows.Next() {
			if e := scan(rows); e != nil {
				err = fmt.Errorf("read the book: %.60s: %w", sql, e)
				return
			}
		}
		if e := rows.Err(); e != nil {
			err = fmt.Errorf("read the book: %w", e)
		}
	}
	ask(`SELECT clock_timestamp(), (SELECT count(*) FROM outbox)`, func(r pgx.Rows) error { return r.Scan(&b.Now, &b.Outbox) })
	ask(`SELECT id, tenant, request_id, state, version, fence, attempts FROM delivery`, func(r pgx.Rows) error {
		var d BookDelivery
		e := r.Scan((*[16]byte)(&d.ID), &d.Tenant, &d.RequestID, (*string)(&d.State), &d.Version, &d.Fence, &d.Attempts)
		b.Deliveries = append(b.Deliveries, d)
		return e
	})
	ask(`SELECT delivery_id, address, state FROM recipient`, func(r pgx.Rows) error {
		var d BookRecipient
		e := r.Scan((*[16]byte)(&d.ID), &d.Address, (*string)(&d.State))
		b.Recipients = append(b.Recipients, d)
		return e
	})
	ask(`SELECT delivery_id, fence, number, coalesce(claimed_at, 'epoch'), settled_at, verdict, answer::text FROM attempt`, func(r pgx.Rows) error {
		var d BookAttempt
		e := r.Scan((*[16]byte)(&d.ID), &d.Fence, &d.Number, &d.ClaimedAt, &d.SettledAt, &d.Verdict, &d.Answer)
		b.Attempts = append(b.Attempts, d)
		return e
	})
	ask(`SELECT aggregate, version, state, subject, body, at FROM event WHERE kind = 'delivery'`, func(r pgx.Rows) error {
		var d BookEvent
		e := r.Scan((*[16]byte)(&d.ID), &d.Version, &d.State, &d.Subject, &d.Body, &d.At)
		b.Events = append(b.Events, d)
		return e
	})
	ask(`SELECT q.id, q.state, q.due_at, coalesce(w.lease_until, 'epoch'), q.fence,
	            coalesce(l.shut_until > now(), false) OR coalesce(l.paused_until > now(), false)
	     FROM queue q LEFT JOIN worker w ON w.id = q.owner LEFT JOIN lane l ON l.id = q.lane WHERE q.kind = 'delivery'`, func(r pgx.Rows) error {
		var d BookQueue
		e := r.Scan((*[16]byte)(&d.ID), &d.State, &d.DueAt, &d.LeaseUntil, &d.Fence, &d.LaneShut)
		if d.LeaseUntil.Unix() == 0 {
			d.LeaseUntil = time.Time{}
		}
		b.Queue = append(b.Queue, d)
		return e
	})
	ask(`SELECT tenant, request_id, body_hash, delivery_id FROM request_key`, func(r pgx.Rows) error {
		var d BookKey
		var hash []byte
		e := r.Scan(&d.Tenant, &d.RequestID, &hash, (*[16]byte)(&d.ID))
		d.Hash = hex.EncodeToString(hash)
		b.Keys = append(b.Keys, d)
		return e
	})
	ask(`SELECT event_id, source, tenant, code, coalesce(encode(sha256(raw), 'hex'), '') FROM dead_letter`, func(r pgx.Rows) error {
		var d BookLetter
		e := r.Scan(&d.EventID, &d.Source, &d.Tenant, &d.Code, &d.RawHash)
		b.Letters = append(b.Letters, d)
		return e
	})
	return b, err
}

// told reads everything that a stream holds.
func (s *Site) told(ctx context.Context, name string) ([]Told, error) {
	stream, err := s.JS.Stream(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", name, err)
	}
	last := stream.CachedInfo().State.LastSeq
	if stream.CachedInfo().State.Msgs == 0 {
		return nil, nil
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", name, err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", name, err)
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	var all []Told
	for {
		m, err := messages.Next()
		if err != nil {
			return nil, fmt.Errorf("read stream %s after %d messages: %w", name, len(all), err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("read stream %s: %w", name, err)
		}
		all = append(all, Told{Sequence: meta.Sequence.Stream, At: meta.Timestamp, Subject: m.Subject(), ID: m.Headers().Get(bus.HeaderEventID), Body: bytes.Clone(m.Data())})
		if meta.Sequence.Stream >= last || meta.NumPending == 0 {
			return all, nil
		}
	}
}

// taken reads the ledgers of all lives of the mail server. A torn last line was
// never acknowledged; any other that cannot be read is an error.
func (s *Site) taken() ([]smtpsink.Entry, error) {
	var all []smtpsink.Entry
	for i, file := range s.sinkFiles {
		text, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the mail server's ledger: %w", err)
		}
		for line := range bytes.Lines(text) {
			if !bytes.HasSuffix(line, []byte("\n")) {
				break
			}
			var e smtpsink.Entry
			if err := json.Unmarshal(line, &e); err != nil {
				return nil, fmt.Errorf("read the mail server's ledger: %w", err)
			}
			e.Connection += int64(i) << 32 // each life counts its own
			all = append(all, e)
		}
	}
	return all, nil
}

// leaks are the lines of the services' logs that hold the marker or the password,
// and what no log should hold at all: a data race.
func (s *Site) leaks(marker string) ([]string, error) {
	var found []string
	for _, v := range s.Services {
		f, err := os.Open(filepath.Join(s.Dir, v.Name+".log"))
		if err != nil {
			return nil, fmt.Errorf("read log: %w", err)
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(make([]byte, 64<<10), 16<<20)
		for lines.Scan() {
			line := lines.Text()
			secret := s.password()
			if marker != "" && strings.Contains(line, marker) || secret != "" && strings.Contains(line, secret) || strings.Contains(line, "WARNING: DATA RACE") {
				found = append(found, fmt.Sprintf("%s: %.160s", v.Name, strings.ReplaceAll(line, secret, "[password]")))
			}
			if len(found) >= 20 {
				break
			}
		}
		err = lines.Err()
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("read log of %s: %w", v.Name, err)
		}
	}
	return found, nil
}
