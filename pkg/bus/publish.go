package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/posthouse-io/posthouse/streams"
)

// Bounds of one atomic batch. The server stages each in a store of its own on the
// disk, which costs it as much as a dozen messages one by one: fewer go that way.
// It takes 1000 messages; a batch that is refused is published again message by
// message, so a large one costs more.
const (
	leastBatch    = 12
	batchMessages = 1000
	batchBytes    = 1 << 20
)

// DefaultAckTimeout is how long a publish waits for the stream's answer.
const DefaultAckTimeout = 5 * time.Second

// Publisher publishes to JetStream under stable ids. Safe for concurrent use; it
// owns no goroutine.
type Publisher struct {
	js      jetstream.JetStream
	wait    time.Duration
	streams []streams.Definition
}

// NewPublisher makes a publisher on a connection; ackTimeout 0 means
// DefaultAckTimeout.
func NewPublisher(nc *nats.Conn, ackTimeout time.Duration) (*Publisher, error) {
	if ackTimeout <= 0 {
		ackTimeout = DefaultAckTimeout
	}
	js, err := jetstream.New(nc,
		jetstream.WithDefaultTimeout(ackTimeout),
		jetstream.WithPublishAsyncTimeout(ackTimeout),
		jetstream.WithPublishAsyncMaxPending(4*batchMessages))
	if err != nil {
		return nil, fmt.Errorf("publisher: %w", err)
	}
	return &Publisher{js: js, wait: ackTimeout, streams: streams.Load()}, nil
}

// Result tells which messages are not known to be stored, by their index in what
// was given to Publish. A failed one may be stored all the same (its answer was
// lost): publish it again under the same id.
type Result struct{ Failed map[int]error }

// Err joins the failures in order; nil when all is stored.
func (r Result) Err() error {
	var errs []error
	for _, i := range slices.Sorted(maps.Keys(r.Failed)) {
		errs = append(errs, r.Failed[i])
	}
	return errors.Join(errs...)
}

func (r *Result) fail(i int, m *nats.Msg, err error) {
	if err == nil {
		return
	}
	if r.Failed == nil {
		r.Failed = map[int]error{}
	}
	r.Failed[i] = fmt.Errorf("publish %s as %s: %w", m.Subject, m.Header.Get(HeaderMsgID), err)
}

// Publish stores every message or says which it could not. Each needs a
// Nats-Msg-Id; a Nats-Expected-Stream is honoured; Reply must be empty. The
// messages are not changed. Messages of one stream keep their order, unless one
// of them fails.
//
// A dozen and more messages for a stream that allows it go as atomic batches, whose
// messages share what the disk takes. The server refuses a whole batch for one message (an id
// that it knows already, a size, no room): then the same messages go one by one.
func (p *Publisher) Publish(ctx context.Context, msgs []*nats.Msg) Result {
	var r Result
	silent := map[string]error{} // streams that gave no answer to a whole chunk: the next would only wait as long
	for _, c := range p.chunks(msgs, &r) {
		if err := cmp.Or(ctx.Err(), silent[c.stream]); err != nil {
			for _, i := range c.index {
				r.fail(i, msgs[i], fmt.Errorf("not tried: %w", err))
			}
			continue
		}
		if c.atomic && len(c.index) >= leastBatch && p.batch(ctx, msgs, c.index) == nil {
			continue
		}
		silent[c.stream] = p.singles(ctx, msgs, c.index, &r)
	}
	return r
}

// chunk is a run of messages for one stream.
type chunk struct {
	stream string
	atomic bool
	index  []int
	bytes  int
}

// chunks sorts the messages by stream and cuts them into batches.
func (p *Publisher) chunks(msgs []*nats.Msg, r *Result) []*chunk {
	var all []*chunk
	open := map[string]*chunk{}
	for i, m := range msgs {
		if m.Header.Get(HeaderMsgID) == "" {
			r.fail(i, m, errors.New("it has no "+HeaderMsgID))
			continue
		}
		home, atomic := p.home(m.Subject)
		c, size := open[home], m.Size()
		if c == nil || len(c.index) == batchMessages || c.bytes+size > batchBytes {
			c = &chunk{stream: home, atomic: atomic}
			open[home] = c
			all = append(all, c)
		}
		c.index = append(c.index, i)
		c.bytes += size
	}
	return all
}

func (p *Publisher) home(subject string) (stream string, atomic bool) {
	for _, d := range p.streams {
		if d.Holds(subject) {
			return d.Config.Name, d.Config.AllowAtomicPublish
		}
	}
	return "", false
}

// batch publishes copies, since the batch leaves headers of its own in them.
func (p *Publisher) batch(ctx context.Context, msgs []*nats.Msg, index []int) error {
	copies := make([]*nats.Msg, 0, len(index))
	for _, i := range index {
		m := msgs[i]
		copies = append(copies, &nats.Msg{Subject: m.Subject, Data: m.Data, Header: maps.Clone(m.Header)})
	}
	ctx, cancel := context.WithTimeout(ctx, p.wait)
	defer cancel()
	_, err := jetstreamext.PublishMsgBatch(ctx, p.js, copies, jetstreamext.BatchFlowControl{AckTimeout: p.wait})
	return err
}

// singles publishes one by one without waiting in between, then waits for the
// answers. It returns an error only when none of them was answered.
func (p *Publisher) singles(ctx context.Context, msgs []*nats.Msg, index []int, r *Result) error {
	futures := make([]jetstream.PubAckFuture, len(index))
	var silent error
	answered := false
	note := func(i int, err error) {
		r.fail(i, msgs[i], err)
		if Unanswered(err) {
			silent = err
		} else {
			answered = true
		}
	}
	for n, i := range index {
		f, err := p.js.PublishMsgAsync(msgs[i], jetstream.WithStallWait(p.wait))
		if err != nil {
			note(i, err)
			continue
		}
		futures[n] = f
	}
	for n, i := range index {
		if futures[n] == nil {
			continue
		}
		select {
		case <-futures[n].Ok():
			note(i, nil)
		case err := <-futures[n].Err():
			note(i, err)
		case <-ctx.Done():
			note(i, ctx.Err())
		}
	}
	if answered {
		return nil
	}
	return silent
}

// Unanswered tells whether err says nothing about the message itself.
func Unanswered(err error) bool {
	return errors.Is(err, jetstream.ErrAsyncPublishTimeout) || errors.Is(err, jetstream.ErrTooManyStalledMsgs) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrDisconnected)
}
