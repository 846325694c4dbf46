package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/posthouse-io/posthouse/streams"
)

// ErrNotRunning means that no instance of the service is connected.
var ErrNotRunning = errors.New("no service listens")

type notRunning struct{ service string }

func (e notRunning) Error() string        { return "no " + e.service + " is running" }
func (e notRunning) Is(target error) bool { return target == ErrNotRunning }

// Call asks an operation: in and out are JSON, a nil in is an empty body, a nil
// out drops the answer. It waits for ctx, at most 10 s if that has no deadline. A
// refusal is an *Error; when nobody listens the error is ErrNotRunning and names
// the service.
//
// A caller that lacks the permission gets no answer but a time-out: the server
// tells only the connection's error handler.
func Call(ctx context.Context, nc *nats.Conn, subject string, in, out any) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTimeout)
		defer cancel()
	}
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("call %s: request: %w", subject, err)
		}
	}
	m, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: subject, Data: body})
	if errors.Is(err, nats.ErrNoResponders) {
		service, _, e := streams.ParseOps(subject)
		if e != nil {
			service = subject
		}
		return notRunning{service}
	}
	if err != nil {
		return fmt.Errorf("call %s: %w", subject, err)
	}
	if code := m.Header.Get(micro.ErrorCodeHeader); code != "" {
		return &Error{Code: code, Text: m.Header.Get(micro.ErrorHeader)}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(m.Data, out); err != nil {
		return fmt.Errorf("call %s: answer: %w", subject, err)
	}
	return nil
}
