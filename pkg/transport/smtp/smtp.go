package smtp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/transport"
)

// Transport sends to the mail server of one Config. It is safe for concurrent
// use; at most MAIL_SERVER_MAX_CONNECTIONS sends are in the dialogue at a time,
// the others wait.
type Transport struct {
	account *account
	pool    *pool
	done    chan struct{} // closed by Close
	sweeper sync.WaitGroup

	mu     sync.Mutex
	closed bool
	sends  sync.WaitGroup // grows only under mu while not closed
}

var _ transport.Transport = (*Transport)(nil)

// noLimit lifts the limit of the dialogue.
var noLimit time.Time

// New checks the configuration and starts the sweeper of idle connections. It
// does not connect.
func New(cfg Config) (*Transport, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("mail server: %w", err)
	}
	tls, err := cfg.tlsConfig()
	if err != nil {
		return nil, fmt.Errorf("mail server: %w", err)
	}
	t := &Transport{
		account: &account{Config: cfg, tls: tls, name: cfg.helo(), scrub: scrubber(cfg)},
		pool:    newPool(cfg),
		done:    make(chan struct{}),
	}
	t.sweeper.Go(t.sweepIdle)
	return t, nil
}

func (t *Transport) sweepIdle() {
	tick := time.NewTicker(max(t.account.IdleTimeout/2, time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			t.pool.sweep(false)
		case <-t.done:
			return
		}
	}
}

// Close lets no new send begin, waits for those in progress and closes all
// connections. A second call waits too and does nothing else.
func (t *Transport) Close() error {
	t.mu.Lock()
	if !t.closed {
		t.closed = true
		close(t.done)
	}
	t.mu.Unlock()
	t.sends.Wait()
	t.sweeper.Wait()
	t.pool.sweep(true)
	return nil
}

// begin counts a send in; false after Close.
func (t *Transport) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.sends.Add(1)
	return true
}

// Send makes one attempt to deliver the message to the recipients that still
// wait. When some are refused and others not, Outcome.Recipients holds all of
// them; the outcome's own answer is then that of the message, or of the first
// refused recipient whose refusal is worth a retry.
func (t *Transport) Send(ctx context.Context, m transport.Message) delivery.Outcome {
	if !t.begin() {
		return interrupted(PhaseWait, "the transport is closed")
	}
	defer t.sends.Done()
	if err := ctx.Err(); err != nil {
		return t.stopped(ctx, parcel{}, broke(PhaseWait, err))
	}
	p, st := t.pack(m)
	if st == nil && p.settled() {
		return p.outcome(delivery.Refused, *p.recipients[0].refused)
	}
	if st != nil {
		return delivery.Outcome{Verdict: delivery.Refused, Answer: st.answer}
	}

	limit := time.Now().Add(t.account.SendTimeout)
	waiting, cancel := context.WithDeadline(ctx, limit)
	defer cancel()
	if !t.pool.acquire(waiting, t.done) {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return t.stopped(ctx, p, broke(PhaseWait, ctx.Err()))
		}
		return interrupted(PhaseWait, "no connection was free") // a wait that we caused costs no attempt
	}
	defer t.pool.release()

	if s := t.pool.take(); s != nil {
		out, st, again := t.attempt(ctx, s, p, m.Proceed, limit)
		switch {
		case st == nil:
			return out
		case !again || ctx.Err() != nil:
			out = t.stopped(ctx, p, st)
			out.Remote = s.remote
			return out
		}
		p.forget() // the kept connection had died; a new one begins anew, once
	}
	s, st := t.account.open(ctx, limit)
	if st != nil {
		out := t.stopped(ctx, p, st)
		out.Remote = t.account.address()
		return out
	}
	out, st, _ := t.attempt(ctx, s, p, m.Proceed, limit)
	if st != nil {
		out = t.stopped(ctx, p, st)
		out.Remote = s.remote
	}
	return out
}

// attempt runs one dialogue on a session and gives the session back. again tells
// that the server was gone before anything irreversible.
func (t *Transport) attempt(ctx context.Context, s *session, p parcel, proceed func() error, limit time.Time) (out delivery.Outcome, st *stop, again bool) {
	s.within(limit)
	release := s.watch(ctx)
	d := &dialogue{session: s, p: p, proceed: proceed}
	out, st = d.run(ctx)
	d.clear()
	if !release() {
		s.broken = true
	}
	t.pool.keep(s)
	out.Remote = s.remote
	return out, st, st != nil && st.lost() && !d.asked
}

// stopped is the outcome of a dialogue that ended before the final dot: known not
// to have been sent.
func (t *Transport) stopped(ctx context.Context, p parcel, st *stop) delivery.Outcome {
	if errors.Is(st.err, errStopped) {
		return delivery.Outcome{Verdict: delivery.Interrupted, Answer: st.answer}
	}
	if errors.Is(ctx.Err(), context.Canceled) && st.err != nil {
		return interrupted(st.answer.Phase, "the send was cancelled")
	}
	if ctx.Err() != nil && st.err != nil {
		st.answer.Code, st.answer.Category = CodeTimeout, delivery.Transient
	}
	return p.outcome(delivery.Refused, st.answer)
}

// interrupted is the outcome of our own decision not to go on.
func interrupted(phase delivery.Phase, why string) delivery.Outcome {
	return delivery.Outcome{Verdict: delivery.Interrupted, Answer: delivery.Answer{Phase: phase, Code: CodeInterrupted, Text: why}}
}
