package nats

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
)

// Forwarder publishes documents to one subject.
type Forwarder struct {
	cfg    Config
	conn   *nats.Conn
	js     jetstream.JetStream
	own    bool
	closed chan struct{} // the own connection has ended
	gate   forward.Gate
}

// New checks the configuration. conn is the connection to use when the
// configuration names no server; the caller keeps it. An own connection is tried
// in the background: a server that is away is no reason not to start.
func New(cfg Config, conn *nats.Conn) (*Forwarder, error) {
	if err := cfg.Check(); err != nil {
		return nil, fmt.Errorf("nats forwarder: %w", err)
	}
	f := &Forwarder{cfg: cfg, conn: conn, closed: make(chan struct{})}
	if cfg.URL != "" {
		var err error
		if f.conn, err = nats.Connect(cfg.URL, f.options()...); err != nil {
			return nil, fmt.Errorf("nats forwarder: connect: %w", err)
		}
		f.own = true
	}
	if f.conn == nil {
		return nil, errors.New("nats forwarder: FORWARDING_NATS_URL is empty and there is no other connection")
	}
	var err error
	if f.js, err = jetstream.New(f.conn); err != nil {
		if f.own {
			f.conn.Close()
			<-f.closed
		}
		return nil, fmt.Errorf("nats forwarder: %w", err)
	}
	return f, nil
}

func (f *Forwarder) options() []nats.Option {
	options := []nats.Option{
		nats.Name("posthouse forwarding"),
		nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true),
		nats.ReconnectBufSize(-1), // nothing goes out later than it was asked to
		nats.IgnoreAuthErrorAbort(),
		nats.ClosedHandler(func(*nats.Conn) { close(f.closed) }),
	}
	if f.cfg.User != "" {
		options = append(options, nats.UserInfo(f.cfg.User, f.cfg.Password))
	}
	if f.cfg.CredsFile != "" {
		options = append(options, nats.UserCredentials(f.cfg.CredsFile))
	}
	if f.cfg.CAFile != "" {
		options = append(options, nats.RootCAs(f.cfg.CAFile))
	}
	return options
}

// Close waits for the forwards in progress and ends an own connection.
func (f *Forwarder) Close() error {
	f.gate.Close()
	if f.own {
		f.conn.Close()
		<-f.closed
	}
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
	remote := f.conn.ConnectedAddr()
	out := f.publish(ctx, &d)
	out.Remote = remote
	return out
}

func (f *Forwarder) publish(ctx context.Context, d *forward.Document) forward.Outcome {
	if !f.conn.IsConnected() {
		return forward.Refused(delivery.Transient, forward.PhaseDial, forward.CodeDial, "not connected to the NATS server", true)
	}
	if limit := f.conn.MaxPayload(); d.Size > limit-maxHeader {
		return forward.Refused(delivery.InvalidInput, forward.PhasePayload, forward.CodePayloadTooLarge,
			fmt.Sprintf("%d bytes are more than the server takes in one message (%d)", d.Size, limit), false)
	}
	to := strings.ReplaceAll(f.cfg.Subject, tenantPlace, d.Tenant)
	if !subject(to) || strings.Contains(f.cfg.Subject, tenantPlace) && strings.Contains(d.Tenant, ".") {
		return forward.Refused(delivery.InvalidInput, forward.PhasePayload, forward.CodeDocument, "the tenant cannot stand in a subject", false)
	}
	m := nats.NewMsg(to)
	m.Header = header(d)
	payload, err := forward.Open(ctx, d, nil)
	if err != nil {
		return forward.Blame(ctx, err)
	}
	m.Data = make([]byte, d.Size)
	_, err = io.ReadFull(payload, m.Data)
	if cerr := payload.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return forward.Blame(ctx, err)
	}
	if out, over := forward.Ended(ctx, forward.PhaseUpload); over {
		return out
	}
	if err := d.Proceed(); err != nil {
		return forward.Interrupted(forward.PhaseUpload, err)
	}
	asking, stop := f.whileConnected(ctx)
	defer stop()
	if f.cfg.Mode == Core {
		return f.request(asking, m)
	}
	return f.store(asking, m)
}

var errDropped = errors.New("the connection was lost before the answer came")

// whileConnected is a ctx that ends with the connection: an answer to what went
// over it would not be sent again, so there is nothing to wait for. stop waits
// for the goroutine behind it.
func (f *Forwarder) whileConnected(ctx context.Context) (asking context.Context, stop func()) {
	asking, cancel := context.WithCancelCause(ctx)
	changed := f.conn.StatusChanged(nats.DISCONNECTED, nats.RECONNECTING, nats.CLOSED)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-changed:
			cancel(errDropped)
		case <-asking.Done():
		}
	})
	return asking, func() {
		cancel(nil)
		watch.Wait()
		f.conn.RemoveStatusListener(changed)
	}
}

// store publishes to a stream and waits for its word.
func (f *Forwarder) store(ctx context.Context, m *nats.Msg) forward.Outcome {
	options := []jetstream.PublishOpt{jetstream.WithRetryAttempts(0)} // the message id is in the header
	if f.cfg.Stream != "" {
		options = append(options, jetstream.WithExpectStream(f.cfg.Stream))
	}
	ack, err := f.js.PublishMsg(ctx, m, options...)
	var refusal *jetstream.APIError
	switch {
	case err == nil:
		return forward.Delivered("", ack.Stream+":"+strconv.FormatUint(ack.Sequence, 10))
	case errors.As(err, &refusal):
		return forward.Refused(delivery.Transient, forward.PhaseFinal, "JS_"+strconv.Itoa(int(refusal.ErrorCode)), refusal.Description, true)
	case errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, nats.ErrNoResponders):
		return forward.Refused(delivery.Transient, forward.PhaseFinal, "NO_RESPONDERS", "no stream takes this subject", true)
	}
	return lost(ctx, err)
}

// request asks the backend itself.
func (f *Forwarder) request(ctx context.Context, m *nats.Msg) forward.Outcome {
	reply, err := f.conn.RequestMsgWithContext(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		return forward.Refused(delivery.Transient, forward.PhaseFinal, "NO_RESPONDERS", "no backend listens to this subject", true)
	}
	if err != nil {
		return lost(ctx, err)
	}
	return answered(reply)
}

// answered reads a reply of the backend.
func answered(reply *nats.Msg) forward.Outcome {
	a, err := forward.ParseAnswer(reply.Data)
	code := reply.Header.Get("Nats-Service-Error-Code")
	var out forward.Outcome
	switch {
	case err == nil && a.NoRetry:
		out = forward.Refused(delivery.Permanent, forward.PhaseFinal, forward.CodeNoRetry, a.Message, false)
		out.NoRetry = true
	case code != "":
		out = forward.Refused(delivery.Transient, forward.PhaseFinal, code, reply.Header.Get("Nats-Service-Error"), true)
	case len(reply.Data) > 0 && err != nil:
		return forward.Unsure(forward.CodeAnswer, err.Error())
	default:
		out = forward.Delivered("", "")
		out.C4Country = a.C4Country
	}
	out.Confirmed = true
	return out
}

// lost is the outcome of a publish without an answer; the library says of some
// faults that nothing was sent.
func lost(ctx context.Context, err error) forward.Outcome {
	switch {
	case errors.Is(err, nats.ErrReconnectBufExceeded): // the connection was down, and nothing is kept for later
		return forward.Refused(delivery.Transient, forward.PhaseUpload, forward.CodeLost, forward.Reason(err), true)
	case errors.Is(err, nats.ErrMaxPayload):
		return forward.Refused(delivery.InvalidInput, forward.PhaseUpload, forward.CodePayloadTooLarge, forward.Reason(err), false)
	case errors.Is(context.Cause(ctx), errDropped):
		return forward.Unsure(forward.CodeLost, errDropped.Error())
	case ctx.Err() != nil || errors.Is(err, nats.ErrTimeout):
		return forward.Unsure(forward.CodeTimeout, "no answer in time")
	}
	return forward.Unsure(forward.CodeLost, forward.Reason(err))
}

// maxHeader is room for the headers, which count as payload: nine texts of
// maxValue bytes and the fixed ones.
const (
	maxHeader = 4 << 10
	maxValue  = 300
)

// header names the same things as that of an HTTP forward.
func header(d *forward.Document) nats.Header {
	h := nats.Header{}
	h.Set(jetstream.MsgIDHeader, d.ID.String())
	h.Set("Content-Type", d.Type())
	h.Set("Posthouse-Document-Id", d.ID.String())
	h.Set("Posthouse-Attempt", strconv.Itoa(d.Attempt))
	h.Set("Posthouse-Sha256", hex.EncodeToString(d.SHA256[:]))
	h.Set("Posthouse-Received-At", d.ReceivedAt.UTC().Format(time.RFC3339Nano))
	for name, value := range map[string]string{
		"Posthouse-Sbdh-Id":        d.SBDHInstanceID,
		"Posthouse-As4-Message-Id": d.AS4MessageID,
		"Posthouse-Sender-Id":      d.SenderID,
		"Posthouse-Receiver-Id":    d.ReceiverID,
		"Posthouse-Doctype-Id":     d.DocTypeID,
		"Posthouse-Process-Id":     d.ProcessID,
		"Posthouse-C1-Country":     d.C1Country,
		"Posthouse-Tenant":         d.Tenant,
		"Posthouse-Verdict":        d.Verdict,
		"traceparent":              d.Traceparent,
	} {
		if value != "" {
			h.Set(name, forward.Escape(value, maxValue))
		}
	}
	return h
}

var _ forward.Forwarder = (*Forwarder)(nil)
