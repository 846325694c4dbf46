package housetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/streams"
)

// Account is all that is known of one delivery.
type Account struct {
	ID                delivery.ID
	Tenant, RequestID string
	State             delivery.State
	Version, Attempts int
	Verdicts          []string         // of the attempts, in order
	Booked            map[int]*message // event table, by version
	Told              map[int]*message // event stream, by version
	Repeats           int              // events that the stream holds more than once
	Arrivals          int              // entries in the mail server's ledger
}

type message struct {
	subject, state string
	body           []byte
	header         nats.Header
}

// Unknown counts attempts whose outcome nobody knows.
func (a *Account) Unknown() (n int) {
	for _, v := range a.Verdicts {
		if v == "unknown" {
			n++
		}
	}
	return n
}

// Audit is the account of every delivery of a site, by its id.
type Audit struct {
	Accounts map[delivery.ID]*Account
	Strays   []string // what names a delivery that the book does not have
}

// Settled waits until n deliveries are in the book, none is in the queue, and the
// outbox is empty.
func (s *Site) Settled(n int, bound time.Duration) {
	s.T.Helper()
	localtest.Eventually(s.T, bound, pace(func() error {
		const sql = `SELECT (SELECT count(*) FROM delivery), (SELECT count(*) FROM queue WHERE state <> 'held'), (SELECT count(*) FROM outbox)`
		var have, queued, outbox int
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.DB.QueryRow(ctx, sql).Scan(&have, &queued, &outbox); err != nil {
			return err
		}
		if have != n || queued > 0 || outbox > 0 {
			return fmt.Errorf("%d of %d deliveries, %d in the queue, %d rows in the outbox, %d mails arrived", have, n, queued, outbox, s.Sink.Count())
		}
		return nil
	}))
}

// pace thins a question out that costs the database something.
func pace(ask func() error) func() error {
	var last time.Time
	var answer error
	return func() error {
		if time.Since(last) > 100*time.Millisecond {
			answer, last = ask(), time.Now()
		}
		return answer
	}
}

// Audit reads database, stream and ledger. Call it when all is Settled.
func (s *Site) Audit() *Audit {
	s.T.Helper()
	a := &Audit{Accounts: map[delivery.ID]*Account{}}
	s.each(`SELECT id, tenant, request_id, state, version, attempts FROM delivery`, func(rows pgx.Rows) error {
		var id [16]byte
		c := &Account{Booked: map[int]*message{}, Told: map[int]*message{}}
		err := rows.Scan(&id, &c.Tenant, &c.RequestID, &c.State, &c.Version, &c.Attempts)
		c.ID = id
		a.Accounts[id] = c
		return err
	})
	s.each(`SELECT delivery_id, verdict FROM attempt ORDER BY delivery_id, fence, settled_at`, func(rows pgx.Rows) error {
		var id [16]byte
		var verdict string
		err := rows.Scan(&id, &verdict)
		a.of(id, "attempt", func(c *Account) { c.Verdicts = append(c.Verdicts, verdict) })
		return err
	})
	s.each(`SELECT aggregate, version, state, subject, body FROM event`, func(rows pgx.Rows) error {
		var id [16]byte
		var version int
		m := &message{}
		err := rows.Scan(&id, &version, &m.state, &m.subject, &m.body)
		a.of(id, "event", func(c *Account) { c.Booked[version] = m })
		return err
	})
	for _, m := range s.Stream(streams.Events) {
		if e, err := streams.ParseEvent(m.Subject); err == nil && e.Kind != streams.KindDelivery {
			continue
		}
		id, version, err := delivery.ParseEventID(EventID(m))
		if err != nil {
			a.Strays = append(a.Strays, "stream: "+err.Error())
			continue
		}
		a.of(id, "stream", func(c *Account) {
			if c.Told[version] != nil {
				c.Repeats++
			}
			c.Told[version] = &message{subject: m.Subject, body: m.Data, header: m.Header}
		})
	}
	for _, e := range s.Sink.Entries() {
		name, _, _ := strings.Cut(e.MessageID, "@")
		id, err := delivery.ParseID(name)
		if err != nil {
			a.Strays = append(a.Strays, "mail server: Message-ID "+e.MessageID)
			continue
		}
		a.of(id, "mail server", func(c *Account) { c.Arrivals++ })
	}
	return a
}

func (a *Audit) of(id delivery.ID, who string, do func(*Account)) {
	if c := a.Accounts[id]; c != nil {
		do(c)
		return
	}
	a.Strays = append(a.Strays, fmt.Sprintf("%s: delivery %s", who, id))
}

func (s *Site) each(sql string, scan func(pgx.Rows) error) {
	s.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rows, err := s.DB.Query(ctx, sql)
	if err != nil {
		s.T.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			s.T.Fatalf("%.40s: %v", sql, err)
		}
	}
	if err := rows.Err(); err != nil {
		s.T.Fatal(err)
	}
}

// Find is the delivery of a client's id; nil: there is none. More than one is a
// fault of the test.
func (a *Audit) Find(t *testing.T, tenant, requestID string) *Account {
	t.Helper()
	var found *Account
	for _, c := range a.Accounts {
		if c.Tenant == tenant && c.RequestID == requestID {
			if found != nil {
				t.Errorf("%s/%s has two deliveries: %s and %s", tenant, requestID, found.ID, c.ID)
			}
			found = c
		}
	}
	return found
}

// Lost lists published requests that have no delivery, and says when one has two.
func (a *Audit) Lost(published []*nats.Msg) (faults []string) {
	type key struct{ tenant, id string }
	have := map[key]int{}
	for _, c := range a.Accounts {
		have[key{c.Tenant, c.RequestID}]++
	}
	wanted := map[key]bool{}
	for _, m := range published {
		_, tenant, err := streams.ParseSend(m.Subject)
		var r struct {
			ID string `json:"id"`
		}
		if err == nil {
			err = json.Unmarshal(m.Data, &r)
		}
		if err != nil {
			faults = append(faults, err.Error())
			continue
		}
		wanted[key{tenant, r.ID}] = true
	}
	for k := range wanted {
		if have[k] != 1 {
			faults = append(faults, fmt.Sprintf("request %s of %s has %d deliveries", k.id, k.tenant, have[k]))
		}
	}
	for k := range have {
		if !wanted[k] {
			faults = append(faults, fmt.Sprintf("request %s of %s was never published", k.id, k.tenant))
		}
	}
	return faults
}

// Check reports everything that never may be, whatever has happened: for mails
// with one recipient each.
func (a *Audit) Check(t *testing.T) {
	t.Helper()
	faults := slices.Clone(a.Strays)
	for _, c := range a.Accounts {
		for _, f := range c.faults() {
			faults = append(faults, fmt.Sprintf("delivery %s (%s/%s, %s, version %d, attempts %v, %d arrivals): %s",
				c.ID, c.Tenant, c.RequestID, c.State, c.Version, c.Verdicts, c.Arrivals, f))
		}
	}
	Report(t, faults)
}

// Report tells the first faults of a list, and how many there are.
func Report(t *testing.T, faults []string) {
	t.Helper()
	slices.Sort(faults)
	for i, f := range faults {
		if i == 20 {
			t.Errorf("... %d faults in all", len(faults))
			return
		}
		t.Error(f)
	}
}

func (c *Account) faults() (faults []string) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for v := 1; v <= c.Version; v++ {
		booked, told := c.Booked[v], c.Told[v]
		switch {
		case booked == nil:
			fault("the event table lacks version %d", v)
		case told == nil:
			fault("the stream lacks version %d", v)
		case !bytes.Equal(booked.body, told.body) || booked.subject != told.subject:
			fault("version %d differs between event table and stream", v)
		}
	}
	if len(c.Booked) > c.Version || len(c.Told) > c.Version {
		fault("events beyond its version: %d in the table, %d on the stream", len(c.Booked), len(c.Told))
	}
	if c.Repeats > 0 {
		fault("%d events are on the stream twice", c.Repeats)
	}
	if last := c.Booked[c.Version]; last != nil {
		if ev, err := delivery.DecodeEvent(last.body); err != nil || ev.State != c.State || last.state != string(c.State) || ev.Version != c.Version {
			fault("its last event says something else")
		}
	}
	accepted := slices.Contains(c.Verdicts, "accepted") || slices.Contains(c.Verdicts, "late")
	switch {
	case c.State == delivery.Sent && c.Arrivals == 0:
		fault("sent, but it never arrived")
	case c.State == delivery.Sent && !accepted:
		fault("sent without an attempt that was accepted")
	case c.State != delivery.Sent && c.Arrivals > 0 && c.Unknown() == 0:
		fault("it arrived, and nobody knows")
	case c.Arrivals > 1+c.Unknown():
		fault("it arrived more often than attempts of unknown outcome explain")
	}
	return faults
}
