package verify

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/guard"
	"github.com/posthouse-io/posthouse/pkg/trust"
)

// Verifier asks one backend.
type Verifier struct {
	target
	transport *http.Transport

	mu     sync.Mutex
	closed bool
	asking sync.WaitGroup
}

func newVerifier(t target, c Config) (*Verifier, error) {
	pool, err := trust.Roots(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("VERIFICATION_CA_FILE: %w", err)
	}
	policy := guard.Public
	switch {
	case t.url.Scheme == "http":
		policy = guard.Private // plain text stays in the house
	case c.AllowPrivate:
		policy = guard.Any
	}
	return &Verifier{target: t, transport: &http.Transport{
		DialContext:            guard.Dialer(policy, c.ConnectTimeout).DialContext,
		TLSClientConfig:        &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(8)},
		TLSHandshakeTimeout:    c.ConnectTimeout,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        c.IdleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a small answer that unpacks to a large one is no answer
	}}, nil
}

// Name is the configured name.
func (v *Verifier) Name() string { return v.name }

// Key names the verifier's breaker and lane.
func (v *Verifier) Key() string { return "verifier$" + v.name }

// Ask asks once and returns within the verifier's time limit.
func (v *Verifier) Ask(ctx context.Context, d Document) document.Result {
	out := ours(CodeInterrupted, "the verifiers are closed")
	if v.enter() {
		out = v.ask(ctx, &d)
		v.asking.Done()
	}
	out.Verifier, out.Key = v.Name(), v.Key()
	return out
}

func (v *Verifier) enter() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closed {
		v.asking.Add(1)
	}
	return !v.closed
}

// close waits for the questions in progress and closes the kept connections.
func (v *Verifier) close() {
	v.mu.Lock()
	v.closed = true
	v.mu.Unlock()
	v.asking.Wait()
	v.transport.CloseIdleConnections()
}

func (v *Verifier) ask(parent context.Context, d *Document) document.Result {
	if d.Open == nil || d.Size < 1 {
		return ours(CodePayload, "the document is empty or cannot be opened")
	}
	ctx, cancel := context.WithTimeout(parent, v.timeout)
	defer cancel()
	var slow atomic.Bool
	payload, err := d.payload(ctx, &slow)
	if err != nil {
		if out, over := ended(parent, ctx, true); over {
			return out
		}
		return ours(CodePayload, forward.Reason(err))
	}
	// No GetBody: what is repeated, the caller repeats. RoundTrip, not Client: nothing
	// follows a redirect.
	req := (&http.Request{
		Method: http.MethodPost, URL: v.url, Host: v.url.Host, Header: d.header(v.token),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: payload, ContentLength: d.Size,
	}).WithContext(ctx)

	resp, failed := v.transport.RoundTrip(req)
	r := reply{token: v.token}
	if failed == nil {
		r.status, r.retryAfter = resp.StatusCode, resp.Header.Get("Retry-After")
		r.body, r.err = io.ReadAll(io.LimitReader(resp.Body, MaxAnswer+1))
		if err := resp.Body.Close(); r.err == nil {
			r.err = err
		}
	}
	// Asked before the end that cancel makes: afterwards ctx is over and every reader
	// has failed.
	isOver := ctx.Err() != nil
	r.whole = payload.Released()
	fault := payload.Failure()
	cancel()
	// Waits for a Read in progress, so slow is final. A store that fails to close has
	// said all before.
	_ = payload.Close()

	switch {
	case failed == nil && r.err == nil && (fault == nil || stopped(fault)):
		return r.result(time.Now())
	case isOver:
		out, _ := ended(parent, ctx, slow.Load())
		return out
	case fault != nil && !stopped(fault):
		return ours(CodePayload, forward.Reason(fault))
	case failed == nil:
		return r.result(time.Now())
	case errors.Is(failed, guard.ErrAddress):
		return away(CodeAddress, forward.Reason(failed))
	case timedOut(failed):
		return away(CodeTimeout, forward.Reason(failed))
	}
	return away(CodeConnection, forward.Reason(failed))
}

// ended tells what an end of the time means: our caller stopped us, or the time
// was used up, by the verifier or, while reading, by our own store.
func ended(parent, ctx context.Context, reading bool) (document.Result, bool) {
	switch {
	case ctx.Err() == nil:
		return document.Result{}, false
	case errors.Is(parent.Err(), context.Canceled):
		return ours(CodeInterrupted, "stopped"), true
	case reading:
		return ours(CodePayload, "the document could not be read in time"), true
	}
	return away(CodeTimeout, "no answer in time"), true
}

// stopped tells a reader that ended with its context from one that failed.
func stopped(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
