package forwarder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/rs/zerolog"
	"golang.org/x/sync/semaphore"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/clerk"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/outbox"
	"github.com/posthouse-io/posthouse/streams"
)

// A document whose bytes lie elsewhere takes as long as fetching them does, and says
// so meanwhile; few are fetched at a time, so that those which come whole never wait
// for them.
const (
	ackWait    = 30 * time.Second
	longest    = fetchTime + time.Minute
	parallel   = 16
	fetching   = 8
	maxPending = 20_000                                  // what waits for its bytes stays among them
	atOnce     = max(128<<20, document.MaxDocumentBytes) // bytes of bodies in memory that are fetched or wait to be stored
	busyWait   = 5 * time.Second
	firstWait  = 10 * time.Second
	longWait   = 5 * time.Minute
)

// intake brings documents from the stream into the book.
type intake struct {
	log    zerolog.Logger
	book   *ledger.Ledger
	docs   *docket.Docket
	modes  docket.Duplicates
	hand   func(outbox.Batch)
	ready  func(docket.Moved)
	fetch  fetcher
	places *semaphore.Weighted // to fetch in: fetching of them
	memory *semaphore.Weighted // for what is fetched: bytes
	giveUp time.Duration       // a body that can not be had for so long makes its document poison
}

func (in *intake) run(ctx context.Context, js jetstream.JetStream) error {
	return bus.Consume(ctx, js, bus.Consumer{Stream: streams.Requests, Durable: "forwarder", Filters: []string{streams.AllInbound()},
		MaxBatch: 1, Prefetch: 2 * parallel, PrefetchBytes: 64 << 20, MaxAckPending: maxPending, AckWait: ackWait, Hold: longest, Parallel: parallel, Log: in.log}, in.take)
}

func (in *intake) take(ctx context.Context, batch []jetstream.Msg) {
	for _, m := range batch {
		in.one(ctx, m)
	}
}

// one stores a document and acknowledges its message. What can not be stored now is
// left unacknowledged and comes again.
func (in *intake) one(ctx context.Context, m jetstream.Msg) {
	r, release, err := in.read(ctx, m)
	defer release()
	if errors.Is(err, errAway) {
		err = in.later(m, err)
	}
	if errors.Is(err, errAway) {
		return
	}
	if err != nil {
		in.poison(ctx, m, err)
		return
	}
	var taken docket.Taken
	err = insist(ctx, in.log, "a document can not be stored", m, func() (err error) {
		taken, err = in.docs.Receive(ctx, r, in.modes)
		return err
	})
	switch {
	case ledger.Refused(err):
		in.log.Error().Err(err).Str("subject", m.Subject()).Msg("the database refuses this document")
		in.poison(ctx, m, errors.New("the database refuses its content"))
		return
	case err != nil:
		return
	case !taken.Fresh && taken.Differs:
		in.log.Warn().Stringer("first", taken.ID).Str("tenant", r.Tenant).Str("repeats", taken.Repeats).Msg("another document under a known id")
		in.poison(ctx, m, fmt.Errorf("its %s id was received before with other content, as document %s", taken.Repeats, taken.ID))
		return
	case !taken.Fresh:
		in.log.Info().Stringer("first", taken.ID).Str("tenant", r.Tenant).Str("repeats", taken.Repeats).Msg("a document was received again; the first one counts")
	default:
		in.hand(taken.Published)
		if taken.Group.Lane != 0 {
			in.ready(docket.Moved{Kind: documents, Group: taken.Group})
		}
		in.log.Info().Stringer("document", taken.ID).Str("tenant", r.Tenant).Str("sbdh", r.In.SBDHInstanceID).Int("bytes", len(r.Body)).Msg("document received")
	}
	if err := m.Ack(); err != nil {
		in.log.Debug().Err(err).Msg("acknowledgement not sent; the document comes again and is known")
	}
}

// later has a document come again whose bytes can not be had now, each time a while
// later; it answers with what makes it poison once that has gone on for too long.
func (in *intake) later(m jetstream.Msg, away error) error {
	meta, err := m.Metadata()
	if err != nil {
		return away // it comes again by itself
	}
	if since := time.Since(meta.Timestamp); since > in.giveUp {
		return fmt.Errorf("its body could not be fetched for %s (INBOUND_FETCH_MAX_DURATION): %s", since.Round(time.Second), strings.TrimPrefix(away.Error(), errAway.Error()+": "))
	}
	wait := busyWait
	if !errors.Is(away, errBusy) {
		wait = min(firstWait<<min(meta.NumDelivered, 10), longWait)
		in.log.Warn().Err(away).Str("subject", m.Subject()).Dur("wait", wait).Msg("the body of a document can not be fetched now; it comes again")
	}
	wait = min(wait, max(in.giveUp/4, time.Second))
	_ = m.NakWithDelay(wait/2 + rand.N(wait))
	return away
}

// body gets what is not in the message, when there is a place to fetch in and memory
// to hold it; release gives the memory back.
func (in *intake) body(ctx context.Context, m jetstream.Msg, ref *document.BodyReference) (body []byte, release func(), err error) {
	if !in.places.TryAcquire(1) {
		return nil, nothing, errBusy
	}
	defer in.places.Release(1)
	if !in.memory.TryAcquire(ref.Size) {
		return nil, nothing, errBusy
	}
	release = func() { in.memory.Release(ref.Size) }
	defer func() {
		if body == nil { // by an error or a panic
			release()
			release = nothing
		}
	}()
	fetched := make(chan struct{})
	var told sync.WaitGroup
	defer told.Wait()
	defer close(fetched)
	told.Go(func() {
		tick := time.NewTicker(ackWait / 3)
		defer tick.Stop()
		for {
			select {
			case <-fetched:
				return
			case <-tick.C:
				_ = m.InProgress()
			}
		}
	})
	body, err = in.fetch.get(ctx, ref)
	return body, release, err
}

func nothing() {}

// read decodes a message and gets the body, whose memory release gives back. A panic
// in foreign content is that content's fault.
func (in *intake) read(ctx context.Context, m jetstream.Msg) (r docket.Reception, release func(), err error) {
	release = nothing
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the document makes the intake panic: %.100v", p)
		}
	}()
	if r.Tenant, err = streams.ParseInbound(m.Subject()); err != nil {
		return r, release, err
	}
	if r.In, err = document.DecodeInbound(m.Data()); err != nil {
		return r, release, err
	}
	r.Trace = m.Headers().Get(bus.HeaderTraceParent)
	if r.Body = r.In.Body; r.In.BodyRef != nil {
		r.Body, release, err = in.body(ctx, m, r.In.BodyRef)
	}
	return r, release, err
}

// poison archives a message that never can be taken, as it came.
func (in *intake) poison(ctx context.Context, m jetstream.Msg, why error) {
	d := ledger.DeadLetter{Subject: m.Subject(), Headers: m.Headers(), Raw: m.Data(),
		Letter: delivery.Letter{EventID: "poison." + bus.Fingerprint(m), Source: string(streams.Poison), Channel: streams.None, Tenant: streams.None, Code: "MALFORMED",
			Reason: delivery.Bound(why.Error())}}
	if tenant, err := streams.ParseInbound(m.Subject()); err == nil {
		d.Tenant = tenant
	}
	err := insist(ctx, in.log, "a poison document can not be archived", m, func() error {
		events, err := in.book.Archive(ctx, []ledger.DeadLetter{d})
		if err == nil {
			in.hand(events)
		}
		return err
	})
	if err != nil {
		return
	}
	in.log.Warn().Str("subject", m.Subject()).Str("reason", d.Reason).Msg("poison document archived")
	if err := m.TermWithReason(d.Reason); err != nil {
		in.log.Debug().Err(err).Msg("termination not sent; the document comes again and is known")
	}
}

// insist repeats do until it succeeds, is refused for good, or ctx ends, holding the
// message meanwhile.
func insist(ctx context.Context, log zerolog.Logger, what string, m jetstream.Msg, do func() error) error {
	held := time.Now()
	return clerk.Insist(ctx, log, what, func() error {
		if time.Since(held) > ackWait/3 {
			held = time.Now()
			_ = m.InProgress()
		}
		return do()
	})
}
