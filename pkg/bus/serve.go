package bus

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/rs/zerolog"
)

// Bounds of an operation.
const (
	maxRequest  = 1 << 20          // bytes of a request body
	callTimeout = 10 * time.Second // of one call, on both sides, where nothing shorter is given
	maxText     = 500              // bytes of an error text
)

// Service is one NATS service (ADR-32, `nats micro ls` finds it). All instances
// of a name share its requests, except those of an endpoint that each answers.
type Service struct {
	Name, Version, Description string // the version is a semantic one
	Endpoints                  []Endpoint
	Log                        zerolog.Logger
}

// Endpoint is one operation. Handle gets one request at a time per instance; its
// context ends after 10 s, and not with Serve's: what was begun is finished. What it returns is the JSON answer; an
// *Error is told to the caller as it is, any other error is logged here and told
// as code 500 without its text.
type Endpoint struct {
	Name, Subject string
	Description   string
	Each          bool // every instance answers each request (see CallEach), not one of them
	Handle        func(ctx context.Context, req Request) (any, error)
}

// Request is what a caller sent.
type Request struct {
	Subject string
	Body    []byte
	Header  nats.Header
}

// Decode reads the body as JSON into v; an empty body leaves v as it is. Unknown
// fields and more than one value are an *Error with code 400.
func (r Request) Decode(v any) error {
	if len(r.Body) == 0 {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(r.Body))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil {
		if _, end := d.Token(); end != io.EOF {
			err = errors.New("more than one value")
		}
	}
	if err != nil {
		return &Error{Code: "400", Text: "request: " + err.Error()}
	}
	return nil
}

// Error is an answer that is a refusal. Codes follow HTTP: 400 wrong request, 404
// no such thing, 409 not in this state, 413 too large, 500 a fault of the service, 503 shutting down.
type Error struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

func (e *Error) Error() string { return e.Code + " " + e.Text }

// Serve answers until ctx ends, then lets the requests in progress end and
// returns nil. It returns an error when the service cannot be set up or the
// connection is closed for good.
func Serve(ctx context.Context, nc *nats.Conn, s Service) error {
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)
	svc, err := micro.AddService(nc, micro.Config{
		Name: s.Name, Version: s.Version, Description: s.Description,
	})
	if err != nil {
		return fmt.Errorf("serve %s: %w", s.Name, err)
	}
	running := &gate{}
	for _, e := range s.Endpoints {
		opts := []micro.EndpointOpt{micro.WithEndpointSubject(e.Subject)}
		if e.Description != "" {
			opts = append(opts, micro.WithEndpointMetadata(map[string]string{"description": e.Description}))
		}
		if e.Each {
			opts = append(opts, micro.WithEndpointQueueGroupDisabled())
		}
		if err = svc.AddEndpoint(e.Name, micro.HandlerFunc(func(r micro.Request) {
			if !running.enter() {
				if answerable(r.Reply()) {
					_ = r.Error("503", s.Name+" is shutting down", []byte("{}")) // unsaid, it is a time-out
				}
				return
			}
			defer running.leave()
			s.answer(ctx, e, r)
		}), opts...); err != nil {
			err = fmt.Errorf("serve %s: endpoint %s: %w", s.Name, e.Name, err)
			break
		}
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case <-closed:
			err = fmt.Errorf("serve %s: %w", s.Name, nats.ErrConnectionClosed)
		}
	}
	if e := svc.Stop(); e != nil && ctx.Err() == nil && err == nil {
		err = fmt.Errorf("serve %s: stop: %w", s.Name, e)
	}
	running.close()
	return err
}

// answerable tells whether an answer may go where the request wants it. The caller
// chooses that subject and we would send it with our permissions: an answer must
// never be a command. It also keeps out what a JetStream consumer pushes here.
func answerable(reply string) bool {
	return reply != "" && !strings.HasPrefix(reply, "$") && !strings.HasPrefix(reply, "posthouse.")
}

func (s Service) answer(ctx context.Context, e Endpoint, r micro.Request) {
	if !answerable(r.Reply()) {
		s.Log.Warn().Str("service", s.Name).Str("endpoint", e.Name).Str("reply", r.Reply()).Msg("request ignored, its answer may not go there")
		return
	}
	out, err := s.run(ctx, e, r)
	var refusal *Error
	if err == nil {
		err = r.RespondJSON(out)
		if err != nil {
			err = fmt.Errorf("answer: %w", err)
		}
	}
	if err == nil {
		return
	}
	if !errors.As(err, &refusal) {
		s.Log.Error().Err(err).Str("service", s.Name).Str("endpoint", e.Name).Msg("operation failed")
		refusal = &Error{Code: "500", Text: "internal error, see the log of " + s.Name}
	}
	text := cmp.Or(refusal.Text, "refused")
	if len(text) > maxText {
		text = text[:maxText]
	}
	body, err := json.Marshal(Error{Code: refusal.Code, Text: text})
	if err == nil {
		err = r.Error(refusal.Code, text, body)
	}
	if err != nil {
		s.Log.Warn().Err(err).Str("service", s.Name).Str("endpoint", e.Name).Msg("refusal could not be sent")
	}
}

func (s Service) run(ctx context.Context, e Endpoint, r micro.Request) (out any, err error) {
	if len(r.Data()) > maxRequest {
		return nil, &Error{Code: "413", Text: fmt.Sprintf("request of %d bytes, at most %d", len(r.Data()), maxRequest)}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			// Its value may repeat the request: only its type is told.
			out, err = nil, fmt.Errorf("panic of type %T", p)
		}
	}()
	return e.Handle(ctx, Request{Subject: r.Subject(), Body: r.Data(), Header: nats.Header(r.Headers())})
}
