package smtpsink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/emersion/go-smtp"
)

// Options of a sink; the zero value listens on a free port of 127.0.0.1 and
// accepts all.
type Options struct {
	Addr string // host:port; empty: 127.0.0.1:0

	TLS         *tls.Config // offers STARTTLS; with ImplicitTLS, speaks TLS from the first byte
	ImplicitTLS bool
	Username    string // with Password: mail is taken only after AUTH PLAIN or LOGIN
	Password    string

	Delay    func() time.Duration // before each acceptance, for load tests; nil: none
	MaxBytes int64                // of one message; 0: 64 MiB. Larger ones get 552 5.3.4
	MaxRcpts int                  // of one message; 0: no limit. Further ones get 452 4.5.3
	KeepBody int                  // bytes of each message kept in its entry; 0: none

	Ledger     func(Entry) // told of each acceptance, one at a time, before the reply
	File       string      // JSON lines, appended and synced before the reply; empty: none
	MaxEntries int         // entries kept in memory, the oldest go first; 0: 100 000
}

// Sink is a running server.
type Sink struct {
	opts     Options
	server   *smtp.Server
	listener *conns
	ledger   *ledger
	tries    tries
	sessions atomic.Int64
	away     atomic.Bool
	knocks   atomic.Int64
	knocked  atomic.Value // string: the peer that was refused last
	done     chan struct{}
	serving  sync.WaitGroup
	once     sync.Once
	closing  error
}

// Start listens and serves until Close.
func Start(o Options) (*Sink, error) {
	if o.Addr == "" {
		o.Addr = "127.0.0.1:0"
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 64 << 20
	}
	if o.ImplicitTLS && o.TLS == nil {
		return nil, errors.New("smtp sink: implicit TLS needs a TLS configuration")
	}
	book, err := openLedger(o)
	if err != nil {
		return nil, fmt.Errorf("smtp sink: %w", err)
	}
	l, err := net.Listen("tcp", o.Addr)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("smtp sink: %w", err), book.close())
	}
	s := &Sink{opts: o, listener: &conns{Listener: l, open: map[*conn]struct{}{}}, ledger: book, done: make(chan struct{}), tries: tries{seen: map[string]int{}}}
	s.server = smtp.NewServer(smtp.BackendFunc(s.session))
	s.server.Domain = "sink.invalid"
	s.server.MaxMessageBytes = o.MaxBytes
	s.server.MaxRecipients = o.MaxRcpts
	s.server.EnableSMTPUTF8 = true
	s.server.AllowInsecureAuth = true
	s.server.ErrorLog = log.New(io.Discard, "", 0) // clients that hang up are the daily business here
	s.server.TLSConfig = o.TLS
	l = s.listener
	if o.ImplicitTLS {
		l = tls.NewListener(l, o.TLS)
	}
	s.serving.Go(func() { _ = s.server.Serve(l) }) // ends with Close; a listener that fails shows in the clients
	return s, nil
}

// Addr is host:port of the listener.
func (s *Sink) Addr() string { return s.listener.Addr().String() }

// Host and Port are the parts of Addr.
func (s *Sink) Host() string { h, _, _ := net.SplitHostPort(s.Addr()); return h }

// Port is the port of Addr.
func (s *Sink) Port() int {
	_, p, _ := net.SplitHostPort(s.Addr())
	n, _ := strconv.Atoi(p)
	return n
}

// Away has the sink refuse every session and every mail with 421 4.3.2, or take
// them again.
func (s *Sink) Away(away bool) { s.away.Store(away) }

// Knocks counts the connections that were refused something while it was away.
func (s *Sink) Knocks() int { return int(s.knocks.Load()) }

// knock refuses a peer while the sink is away. One that tries EHLO and then HELO
// has knocked once.
func (s *Sink) knock(peer string) error {
	if !s.away.Load() {
		return nil
	}
	if last := s.knocked.Swap(peer); last != peer {
		s.knocks.Add(1)
	}
	return refusal(421, smtp.EnhancedCode{4, 3, 2}, "System not accepting network messages")
}

// Connections counts the sessions begun so far.
func (s *Sink) Connections() int { return int(s.sessions.Load()) }

// Count is the number of messages accepted so far.
func (s *Sink) Count() int { return s.ledger.count() }

// Entries returns the acceptances that are still in memory, oldest first.
func (s *Sink) Entries() []Entry { return s.ledger.entries() }

// Wait returns when n messages have been accepted since Start, or with the error
// of ctx.
func (s *Sink) Wait(ctx context.Context, n int) error { return s.ledger.wait(ctx, n) }

// Close ends all connections, waits for their goroutines and closes the ledger's
// file. A second call returns the same.
func (s *Sink) Close() error {
	s.once.Do(func() {
		close(s.done)
		err := s.listener.Close()
		s.serving.Wait()
		// The server's own Close would let go of connections whose session still
		// works, so ours goes first.
		s.listener.end()
		_ = s.server.Close() // nothing is left for it but to say that the listener is closed
		s.closing = errors.Join(err, s.ledger.close())
	})
	return s.closing
}
