package sender

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/pkg/planted"
	"github.com/posthouse-io/posthouse/pkg/queue"
	"github.com/posthouse-io/posthouse/streams"
)

const (
	intakeAckWait = 30 * time.Second
	bellKind      = string(streams.KindDelivery)
)

// intake brings requests from the stream into the book: decode, prepare, one
// transaction for the batch, then the acknowledgements.
type intake struct {
	log      zerolog.Logger
	book     *ledger.Ledger
	nc       *nats.Conn
	instance string
	hand     func(outbox.Batch)
	loop     *claim.Loop[ledger.Claimed]
	prepare  preparer
	count    counters
	forget   func(key string) // what this sender has counted of a lane
}

func (in *intake) run(ctx context.Context, js jetstream.JetStream, cfg Config) error {
	return bus.Consume(ctx, js, bus.Consumer{Stream: streams.Requests, Durable: "sender", Filters: []string{streams.AllSend()},
		MaxBatch: cfg.IntakeBatch, Prefetch: 2*cfg.IntakeBatch + 1, PrefetchBytes: 32 << 20, MaxAckPending: cfg.IntakeMaxPending, AckWait: intakeAckWait,
		Log: in.log}, in.take)
}

// take handles one batch. What cannot be stored now is left unacknowledged and
// comes again.
func (in *intake) take(ctx context.Context, batch []jetstream.Msg) {
	var good []ledger.Acceptance
	var from []jetstream.Msg
	for _, m := range batch {
		a, err := in.read(m)
		if err != nil {
			in.poison(ctx, m, err)
			continue
		}
		good, from = append(good, a), append(from, m)
	}
	if len(good) > 0 {
		in.store(ctx, from, good)
	}
}

// store brings prepared requests into the book and acknowledges them. When the
// database refuses the content of a batch, its requests are stored one by one, and
// the one that is refused alone is poison.
func (in *intake) store(ctx context.Context, from []jetstream.Msg, good []ledger.Acceptance) {
	for _, m := range planted.Among(planted.Ack, from) {
		_ = m.DoubleAck(ctx)
	}
	results, handed, err := in.accept(ctx, from, good)
	switch {
	case ledger.Refused(err) && len(good) > 1:
		for i := range good {
			in.store(ctx, from[i:i+1], good[i:i+1])
		}
		return
	case ledger.Refused(err):
		in.log.Error().Err(err).Str("subject", from[0].Subject()).Msg("the database refuses this request")
		in.poison(ctx, from[0], errors.New("the database refuses its content"))
		return
	case err != nil:
		return
	}
	fresh := make([]ledger.Acceptance, 0, len(good))
	for i, r := range results {
		switch {
		case r.Conflict:
			in.poison(ctx, from[i], &conflictError{first: r.ID})
			continue
		case r.Fresh && !handed[r.ID]:
			fresh = append(fresh, good[i])
		}
		if err := from[i].Ack(); err != nil {
			in.log.Debug().Err(err).Msg("acknowledgement not sent; the request comes again and is known")
		}
	}
	in.wake(fresh)
}

// accept stores the batch. The first try hands over as many requests as there are
// free slots reserved in their lane: they begin with the commit, without a claim.
func (in *intake) accept(ctx context.Context, batch []jetstream.Msg, good []ledger.Acceptance) (results []ledger.Acceptation, handed map[delivery.ID]bool, err error) {
	handed = make(map[delivery.ID]bool)
	if slots := in.reserve(good); slots != nil {
		var events outbox.Batch
		var begun []ledger.Claimed
		results, begun, events, err = in.book.AcceptHanded(ctx, slots.Lease().Worker, good)
		if err == nil {
			slots.Start(begun)
			in.hand(events)
			for _, c := range begun {
				handed[c.ID] = true
			}
			return results, handed, nil
		}
		slots.Cancel(true)
	}
	err = in.insist(ctx, batch, func() (err error) {
		var events outbox.Batch
		results, events, err = in.book.Accept(ctx, good)
		if err == nil {
			in.hand(events)
		}
		return err
	})
	return results, handed, err
}

// reserve sets slots aside for the first requests that can go at once, and marks
// those.
func (in *intake) reserve(good []ledger.Acceptance) *claim.Reservation[ledger.Claimed] {
	var able []int
	for i := range good {
		if good[i].Failure == nil && good[i].SendAt == nil {
			able = append(able, i)
		}
	}
	if len(able) == 0 {
		return nil
	}
	slots := in.loop.Reserve(in.prepare.lane, len(able))
	if slots != nil {
		for _, i := range able[:min(slots.N, len(able))] {
			good[i].Hand = true
		}
	}
	return slots
}

// read decodes and prepares one request. A panic in foreign content is that
// content's fault, not the batch's.
func (in *intake) read(m jetstream.Msg) (a ledger.Acceptance, err error) {
	defer func() {
		if r := recover(); r != nil {
			in.log.Error().Interface("panic", r).Bytes("stack", debug.Stack()).Msg("a request made the intake panic")
			err = fmt.Errorf("the request makes the intake panic: %.100v", r)
		}
	}()
	channel, tenant, err := streams.ParseSend(m.Subject())
	if err != nil {
		return a, err
	}
	if delivery.Channel(channel) != delivery.Mail {
		return a, fmt.Errorf("channel %q is not known; want mail", channel)
	}
	if !utf8.Valid(m.Data()) { // RFC 8259 section 8.1; the decoder would replace what it cannot read, and send that
		return a, errors.New("the body is not UTF-8")
	}
	r, err := delivery.DecodeRequest(m.Data(), m.Headers().Get(bus.HeaderMsgID))
	if err != nil {
		return a, err
	}
	class, err := delivery.ParseClass(r.Class)
	if err != nil {
		return a, err
	}
	p := in.prepare.mail(&r.MailRequest)
	a = ledger.Acceptance{ID: delivery.NewID(), Tenant: tenant, Channel: delivery.Mail, RequestID: r.ID, BodyHash: sha256.Sum256(m.Data()),
		Class: class, Lane: in.prepare.lane, Recipients: p.recipients, Prepared: p.content, Failure: p.failure,
		SendAt: r.SendAt, ExpiresAt: r.ExpiresAt, OrderingKey: r.OrderingKey, Raw: m.Data(), Trace: m.Headers().Get(bus.HeaderTraceParent), Custom: r.Custom}
	if p.failure != nil {
		in.log.Error().Stringer("delivery", a.ID).Str("tenant", tenant).Str("code", p.failure.Code).Str("reason", p.failure.Text).Msg("cannot be prepared")
	}
	return a, nil
}

// insist repeats do until it succeeds, is refused for good, or the time of the
// batch is over, holding the messages meanwhile.
func (in *intake) insist(ctx context.Context, batch []jetstream.Msg, do func() error) error {
	held := time.Now()
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := do()
		if err == nil || ledger.Refused(err) {
			return err
		}
		in.log.Warn().Err(err).Int("requests", len(batch)).Msg("requests cannot be stored; trying again")
		t := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		case <-t.C:
		}
		if time.Since(held) > intakeAckWait/3 {
			held = time.Now()
			for _, m := range batch {
				_ = m.InProgress()
			}
		}
	}
}

// wake tells the senders, our own first, which groups have new ready work.
func (in *intake) wake(fresh []ledger.Acceptance) {
	now := time.Now()
	seen := make(map[claim.Group]bool)
	var groups []claim.Group
	for _, a := range fresh {
		g := claim.Group{Lane: a.Lane, Tenant: a.Tenant, Class: int16(a.Class)}
		if a.Failure == nil && (a.SendAt == nil || !a.SendAt.After(now)) && !seen[g] {
			seen[g] = true
			groups = append(groups, g)
		}
	}
	in.tell(groups)
}

// tell announces ready work, to our own loop and by the bell.
func (in *intake) tell(groups []claim.Group) {
	if len(groups) == 0 {
		return
	}
	in.loop.Announce(groups...)
	_ = bus.Ring(in.nc, bellKind, claim.Bell{From: in.instance, Groups: groups}) // nobody need hear it
}

// wakeAll has every sender look at the queue now: a bell that names no group.
func (in *intake) wakeAll() { in.rouse(claim.Bell{From: in.instance}) }

// reset is wakeAll after a reset: every sender forgets what it has counted of the
// lane. Whoever does not hear it forgets with the next change of the lane's breaker.
func (in *intake) reset(key string) {
	in.forget(key)
	in.rouse(claim.Bell{From: in.instance, Forget: key})
}

func (in *intake) rouse(b claim.Bell) {
	in.loop.Wake()
	for _, kind := range []string{bellKind, queue.Documents} { // a lane, tenant or channel may be the forwarders'
		_ = bus.Ring(in.nc, kind, b)
	}
}

// ring is called for each doorbell of any sender.
func (in *intake) ring(payload []byte) {
	var b claim.Bell
	if json.Unmarshal(payload, &b) != nil || b.From == in.instance {
		return
	}
	if b.Forget != "" {
		in.forget(b.Forget)
	}
	switch {
	case len(b.Groups) == 0:
		in.loop.Wake()
	default:
		in.loop.Announce(b.Groups...)
	}
}
