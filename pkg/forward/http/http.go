package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	nethttp "net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/guard"
)

// Forwarder posts documents to one backend.
type Forwarder struct {
	cfg       Config
	mode      Mode
	endpoint  *url.URL
	keys      [][]byte
	fixed     map[string]string
	secrets   []string // what no text of an answer may carry
	transport *nethttp.Transport
	gate      forward.Gate
}

// New checks the configuration; it connects to nothing yet.
func New(cfg Config, mode Mode) (*Forwarder, error) {
	if mode != Sync && mode != Async {
		return nil, fmt.Errorf("http forwarder: mode %.16q is neither sync nor async", mode)
	}
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("http forwarder: %w", err)
	}
	tlsConfig, err := cfg.tlsConfig()
	if err != nil {
		return nil, fmt.Errorf("http forwarder: %w", err)
	}
	f := &Forwarder{cfg: cfg, mode: mode}
	f.endpoint, _ = url.Parse(cfg.Endpoint) // checked above, like the next two
	f.keys, _ = parseSecrets(cfg.SigningSecrets)
	f.fixed, _ = parseHeaders(cfg.Headers)
	f.secrets = append([]string{cfg.BearerToken, cfg.Password, basic(cfg)}, cfg.SigningSecrets...)
	for _, value := range f.fixed {
		if len(value) >= 8 { // shorter ones would blot out words
			f.secrets = append(f.secrets, value)
		}
	}
	policy := guard.Public
	switch {
	case f.endpoint.Scheme == "http":
		policy = guard.Private
	case cfg.AllowPrivate:
		policy = guard.Any
	}
	f.transport = &nethttp.Transport{
		DialContext:            guard.Dialer(policy, cfg.ConnectTimeout).DialContext,
		TLSClientConfig:        tlsConfig,
		TLSHandshakeTimeout:    cfg.ConnectTimeout,
		ResponseHeaderTimeout:  cfg.ResponseTimeout,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        cfg.IdleTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // a small answer that unpacks to a large one is no answer
	}
	return f, nil
}

// Close waits for the forwards in progress and closes the kept connections.
func (f *Forwarder) Close() error {
	f.gate.Close()
	f.transport.CloseIdleConnections()
	return nil
}

// Forward is forward.Forwarder.
func (f *Forwarder) Forward(ctx context.Context, d forward.Document) forward.Outcome {
	if out, ok := f.gate.Enter(ctx, &d); !ok {
		return out
	}
	defer f.gate.Leave()
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()

	at, signed := time.Now(), ""
	if len(f.keys) > 0 {
		var err error
		if signed, err = signature(ctx, &d, f.keys, at); err != nil {
			return forward.Blame(ctx, err)
		}
	}
	out := f.post(ctx, &d, f.header(&d, signed, at))
	out.Remote = f.endpoint.Host
	return out
}

// post sends the request and waits until nothing of it can move any more: only
// then it is known whether the last byte has left.
func (f *Forwarder) post(ctx context.Context, d *forward.Document, h nethttp.Header) forward.Outcome {
	reading, stop := context.WithCancel(ctx)
	defer stop()
	payload, err := forward.Open(reading, d, d.Proceed)
	if err != nil {
		return forward.Blame(ctx, err)
	}
	var connected bool
	wrote := make(chan error, 1)
	trace := &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected = true },
		WroteRequest: func(i httptrace.WroteRequestInfo) {
			select {
			case wrote <- i.Err:
			default:
			}
		},
	}
	// No GetBody: with it, and an idempotency key, net/http would repeat the request
	// on a lost connection, unseen by Proceed.
	req := (&nethttp.Request{
		Method: nethttp.MethodPost, URL: f.endpoint, Host: f.endpoint.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: payload, ContentLength: d.Size,
	}).WithContext(httptrace.WithClientTrace(ctx, trace))

	resp, failed := f.transport.RoundTrip(req)
	var r reply
	if failed == nil {
		r = read(resp)
	}
	stop()
	if err := payload.Close(); err != nil && failed != nil {
		return forward.Blame(ctx, err) // a fault of the store that came first
	}

	r.whole, r.secrets = payload.Released(), f.secrets
	if failed == nil {
		// A payload that failed explains the answer better than the answer does; one
		// that was merely stopped above does not.
		if fault := payload.Failure(); fault == nil || errors.Is(fault, context.Canceled) {
			return r.outcome(f.mode, time.Now())
		}
	}
	return f.broken(ctx, payload, failed, connected, wrote)
}

// broken is the outcome without an answer.
func (f *Forwarder) broken(ctx context.Context, p *forward.Payload, failed error, connected bool, wrote <-chan error) forward.Outcome {
	if !p.Released() {
		if err := p.Failure(); err != nil {
			return forward.Blame(ctx, err)
		}
		phase := forward.PhaseDial
		if connected {
			phase = forward.PhaseUpload
		}
		if out, over := forward.Ended(ctx, phase); over {
			return out
		}
		return refusedBefore(failed, connected)
	}
	// The last byte was released while net/http wrote the request, so it will say
	// how the writing ended. A write that failed was not complete, and the backend
	// cannot have what was not sent.
	var unsent error
	select {
	case unsent = <-wrote:
	case <-time.After(time.Second): // not seen yet, and no reason to wait for ever
	}
	if unsent != nil {
		if out, over := forward.Ended(ctx, forward.PhaseUpload); over {
			return out
		}
		return refusedBefore(unsent, true)
	}
	if timedOut(ctx, failed) {
		return forward.Unsure(forward.CodeTimeout, "no answer in time")
	}
	return forward.Unsure(forward.CodeLost, forward.Reason(failed))
}

func timedOut(ctx context.Context, err error) bool {
	t, ok := err.(interface{ Timeout() bool })
	return ctx.Err() != nil || ok && t.Timeout()
}

// read takes the answer, bounded, and frees the connection.
func read(resp *nethttp.Response) reply {
	b, err := io.ReadAll(io.LimitReader(resp.Body, forward.MaxAnswer+1))
	if cerr := resp.Body.Close(); err == nil && cerr != nil {
		err = cerr
	}
	return reply{status: resp.StatusCode, retryAfter: resp.Header.Get("Retry-After"), body: b, err: err}
}

var _ forward.Forwarder = (*Forwarder)(nil)
