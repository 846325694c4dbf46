package deadletter

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/streams"
)

type archivist struct {
	log  zerolog.Logger
	book *ledger.Ledger
	hand func(outbox.Batch)
}

// take archives one batch of events and acknowledges them. While the database is
// away it tries on; what is not archived in time comes again.
func (a *archivist) take(ctx context.Context, batch []jetstream.Msg) {
	var letters []ledger.DeadLetter
	var from []jetstream.Msg
	for _, m := range batch {
		d, is := letter(m.Subject(), m.Data())
		if !is {
			_ = m.Ack() // a note about a document whose letter is there
			continue
		}
		letters, from = append(letters, d), append(from, m)
	}
	batch = from
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := a.archive(ctx, letters, batch)
		if err == nil {
			break
		}
		a.log.Warn().Err(err).Int("letters", len(letters)).Msg("dead letters cannot be archived; trying again")
		t := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
	for i, m := range batch {
		a.log.Error().Str("letter", letters[i].EventID).Str("source", letters[i].Source).Str("tenant", letters[i].Tenant).
			Str("code", letters[i].Code).Str("reason", letters[i].Reason).Msg("dead letter")
		if err := m.Ack(); err != nil {
			a.log.Debug().Err(err).Msg("acknowledgement not sent; the event comes again and is known")
		}
	}
}

// archive writes letters together; when the database refuses the content of one,
// each by itself. What is refused alone keeps the event as bytes instead of as
// JSON, so that no letter holds up the others.
func (a *archivist) archive(ctx context.Context, letters []ledger.DeadLetter, batch []jetstream.Msg) error {
	err := a.store(ctx, letters)
	if !refused(err) {
		return err
	}
	for i, m := range batch {
		err := a.store(ctx, letters[i:i+1])
		if refused(err) {
			letters[i].Summary, letters[i].Raw = nil, m.Data()
			err = a.store(ctx, letters[i:i+1])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *archivist) store(ctx context.Context, letters []ledger.DeadLetter) error {
	events, err := a.book.Archive(ctx, letters)
	if err == nil {
		a.hand(events)
	}
	return err
}

// refused tells an answer about the content (not text of its encoding, too deep)
// from trouble that another try may mend.
func refused(err error) bool {
	var answer interface{ SQLState() string }
	return errors.As(err, &answer) && (strings.HasPrefix(answer.SQLState(), "22") || strings.HasPrefix(answer.SQLState(), "54"))
}

// letter makes a dead letter of an event; of a message that is none, too. False: the
// event asks for none.
func letter(subject string, body []byte) (ledger.DeadLetter, bool) {
	if s, err := streams.ParseEvent(subject); err == nil && s.Kind == streams.KindDocument {
		if e, err := document.DecodeEvent(body); err == nil && e.Event == delivery.EventID(e.ID, e.Version) && streams.Token(e.Tenant) {
			source, is := documentSource(e)
			return documentLetter(e, source, body), is
		}
	}
	return deliveryLetter(subject, body), true
}

// documentLetter tells of a document that nobody takes on.
func documentLetter(e *document.Event, source streams.Source, body []byte) ledger.DeadLetter {
	d := ledger.DeadLetter{Letter: delivery.Letter{EventID: e.Event, Source: string(source), Channel: streams.None, Tenant: e.Tenant, ID: &e.ID,
		RequestID: e.SBDHInstanceID, Summary: body, Code: string(e.Cause), Reason: fmt.Sprintf("document %s: %s", e.State, e.Cause)}}
	switch {
	case e.Answer != nil:
		d.Code = e.Answer.Code
		d.Reason += fmt.Sprintf(" after %d attempts: %s", e.Attempts, e.Answer.Text)
	case len(e.Issues) > 0:
		d.Reason += ": " + document.Summary(e.Issues)
	}
	d.Reason = delivery.Bound(d.Reason)
	return d
}

func deliveryLetter(subject string, body []byte) ledger.DeadLetter {
	ev, err := delivery.DecodeEvent(body)
	source, known := streams.Source(""), false
	if err == nil {
		source, known = sources()[ev.State]
	}
	if !known || ev.Event != delivery.EventID(ev.ID, ev.Version) || !streams.Token(ev.Tenant) || !streams.Token(string(ev.Channel)) {
		sum := sha256.Sum256(append([]byte(subject+"\n"), body...))
		return ledger.DeadLetter{Subject: subject, Raw: body, Letter: delivery.Letter{EventID: "poison." + hex.EncodeToString(sum[:16]),
			Source: string(streams.Poison), Channel: streams.None, Tenant: streams.None, Code: "NO_EVENT", Reason: "a message on the event stream is no event of a final failure"}}
	}
	d := ledger.DeadLetter{Letter: delivery.Letter{EventID: ev.Event, Source: string(source), Channel: string(ev.Channel), Tenant: ev.Tenant, ID: &ev.ID,
		RequestID: ev.RequestID, Summary: body, Reason: fmt.Sprintf("%s after %d attempts", ev.State, ev.Attempts)}}
	if ev.Answer != nil {
		d.Code = ev.Answer.Code
		if ev.Answer.Text != "" {
			d.Reason += ": " + ev.Answer.Text
		}
	}
	d.Reason = delivery.Bound(d.Reason)
	return d
}
