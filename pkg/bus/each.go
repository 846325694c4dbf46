package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/posthouse-io/posthouse/streams"
)

// Bounds of CallEach: nobody knows how many will answer.
const (
	eachTime  = 2 * time.Second        // for the first answer, and for all of them
	eachQuiet = 300 * time.Millisecond // after an answer: then there will be no more
	eachMost  = 1000                   // answers
)

// CallEach asks an operation that every instance answers (Endpoint.Each, on the
// subject streams.OpsEach), and gives take the JSON of each answer. It returns once no answer has come for 300 ms, after 2 s, or after 1000
// answers: an instance that is slower is left out, and so is one whose answer is a
// refusal as long as another one's is not. Without any answer the error is that of
// Call.
func CallEach(ctx context.Context, nc *nats.Conn, service, verb string, in any, take func(answer []byte) error) error {
	subject := streams.OpsEach(service, verb)
	ctx, cancel := context.WithTimeout(ctx, eachTime)
	defer cancel()
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("call %s: request: %w", subject, err)
	}
	inbox := nc.NewInbox() // its own: the permission for many answers ends with it
	sub, err := nc.SubscribeSync(inbox)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		err = nc.PublishRequest(subject, inbox, body)
	}
	if err != nil {
		return fmt.Errorf("call %s: %w", subject, err)
	}
	var refused error
	taken, wait := 0, ctx
	for range eachMost {
		m, err := sub.NextMsgWithContext(wait)
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return notRunning{service}
		case err != nil && (taken > 0 || refused != nil) && wait.Err() != nil: // it is quiet, and somebody has answered
			return unless(taken > 0, refused)
		case err != nil:
			return fmt.Errorf("call %s: %w", subject, err)
		}
		if code := m.Header.Get(micro.ErrorCodeHeader); code != "" {
			refused = &Error{Code: code, Text: m.Header.Get(micro.ErrorHeader)}
		} else if err := take(m.Data); err != nil {
			return fmt.Errorf("call %s: answer: %w", subject, err)
		} else {
			taken++
		}
		quiet, end := context.WithTimeout(ctx, eachQuiet)
		defer end()
		wait = quiet
	}
	return unless(taken > 0, refused)
}

func unless(done bool, err error) error {
	if done {
		return nil
	}
	return err
}
