package bench

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/transport/smtp"
	"github.com/posthouse-io/posthouse/streams"
)

const (
	contentBytes = 1024 // of the prepared content, and of the body of a request
	acceptBatch  = 1000
	tenant       = "acme"
)

// bunch is rows to accept: of one tenant, on one lane, recipients <name>0@, <name>1@ and so on.
type bunch struct {
	tenant string
	lane   int32
	name   string
	n      int
}

// accept puts rows into the book the way intake does, and takes their first
// events off the outbox: what is measured publishes its own only.
func (at *site) accept(ctx context.Context, bunches ...bunch) error {
	for _, b := range bunches {
		content, err := preparedContent()
		if err != nil {
			return err
		}
		for from := 0; from < b.n; from += acceptBatch {
			batch := make([]ledger.Acceptance, min(acceptBatch, b.n-from))
			for i := range batch {
				id := fmt.Sprintf("%s%d", b.name, from+i)
				batch[i] = ledger.Acceptance{ID: delivery.NewID(), Tenant: b.tenant, Channel: delivery.Mail, RequestID: id, BodyHash: sha256.Sum256([]byte(id)),
					Class: delivery.Transactional, Lane: b.lane, Recipients: []string{id + "@example.test"}, Prepared: content}
			}
			if _, _, err := at.book.Accept(ctx, batch); err != nil {
				return err
			}
		}
	}
	_, err := at.db.Exec(ctx, "TRUNCATE outbox")
	if err != nil {
		return fmt.Errorf("clear outbox: %w", err)
	}
	return nil
}

// rest brings the database to the state in which every run starts.
func (at *site) rest(ctx context.Context) error {
	for _, sql := range []string{"VACUUM (ANALYZE)", "CHECKPOINT"} {
		if _, err := at.db.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func preparedContent() ([]byte, error) {
	m := smtp.Mail{To: []smtp.Address{{Address: "user@example.test"}}, Subject: "Hello"}
	empty, err := m.Encode()
	if err != nil {
		return nil, err
	}
	m.Text = text(contentBytes - len(empty) - len(`,"text":""`))
	return m.Encode()
}

func text(n int) string {
	const words = "The quick brown fox jumps over the lazy dog and is carried on. "
	return strings.Repeat(words, n/len(words)+1)[:n]
}

// request is one message of an application, about 1 KiB.
func request(tenant, id string) (*nats.Msg, error) {
	r := delivery.Request{Version: 1, ID: id, MailRequest: delivery.MailRequest{To: []string{id + "@example.test"}, Subject: "Hello", Text: text(contentBytes - 120)}}
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", id, err)
	}
	return &nats.Msg{Subject: streams.Send(string(delivery.Mail), tenant), Data: body, Header: nats.Header{"Nats-Msg-Id": {id}}}, nil
}

// loaded makes a database with n ready rows once, for several runs to start from.
func (s *servers) loaded(ctx context.Context, n int) (string, error) {
	name := fmt.Sprintf("bench_loaded_%d", n)
	if s.ready[name] {
		return name, nil
	}
	err := s.on(ctx, ground{}, func(ctx context.Context, at *site) error {
		if err := at.accept(ctx, bunch{tenant, at.lane, "r", n}); err != nil {
			return err
		}
		if err := at.rest(ctx); err != nil {
			return err
		}
		at.db.Close()
		if _, err := s.admin.Exec(ctx, "ALTER DATABASE "+at.database+" RENAME TO "+name); err != nil {
			return fmt.Errorf("keep the rows: %w", err)
		}
		s.ready[name] = true
		at.database = ""
		return nil
	})
	return name, err
}

// filled makes a folder of streams with n requests in it, once.
func (s *servers) filled(ctx context.Context, n int) (string, error) {
	dir := filepath.Join(s.dir, fmt.Sprintf("requests_%d", n))
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	err := s.on(ctx, ground{natsDir: dir, lazySync: true}, func(ctx context.Context, at *site) error {
		for i := range n {
			m, err := request(tenant, fmt.Sprintf("q%d", i))
			if err != nil {
				return err
			}
			if _, err := at.js.PublishMsgAsync(m, jetstream.WithStallWait(stopServers)); err != nil {
				return fmt.Errorf("publish request %d: %w", i, err)
			}
		}
		select {
		case <-at.js.PublishAsyncComplete():
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		info, err := at.js.Stream(ctx, streams.Requests)
		if err != nil {
			return fmt.Errorf("requests: %w", err)
		}
		if have := int(info.CachedInfo().State.Msgs); have != n {
			return fmt.Errorf("of %d requests the stream has %d", n, have)
		}
		return nil
	})
	if err == nil { // the first server to read what another has written works more
		err = s.on(ctx, ground{natsDir: dir}, func(context.Context, *site) error { return nil })
	}
	return dir, err
}
