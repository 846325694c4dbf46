package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nats-io/nats.go"
)

var (
	// ErrShutdownTimeout is the cause of the working context's end.
	ErrShutdownTimeout = errors.New("SHUTDOWN_TIMEOUT is over")
	// ErrNATSClosed ends a process whose NATS connection will not come back.
	ErrNATSClosed = errors.New("the NATS connection is closed for good")
	// ErrWorkLeft means that the body did not return; leases bring its work back.
	ErrWorkLeft = errors.New("work was left behind")
)

// lastGrace is what a body has after its working context ended.
const lastGrace = 2 * time.Second

// Body is what a service does with its process. taking ends when no new work
// may be taken; working ends when work in hand must stop.
type Body func(taking, working context.Context, p *Process) error

// Run opens a process, serves its health, runs body and closes. It returns the
// error of the body, nil when ctx ends before there is anything to do, an error
// when the process cannot open or NATS is closed for good, and ErrWorkLeft when
// the body does not return within SHUTDOWN_TIMEOUT and two seconds. A bare
// context.Canceled from a body that was told to stop is no error.
func Run(ctx context.Context, name string, s Settings, body Body) error {
	return run(ctx, name, s, os.Stderr, body)
}

func run(ctx context.Context, name string, s Settings, stderr io.Writer, body Body) error {
	p, err := prepare(ctx, name, s, stderr)
	if err != nil {
		return err
	}
	defer func() {
		if err := p.Close(ctx); err != nil {
			p.Log.Warn().Err(err).Msg("closed with losses")
		}
		p.Log.Info().Msg("stopped")
	}()
	stopHealth, err := p.Health.serve(ctx, s.HealthListen, p.Log)
	if err != nil {
		return err
	}
	defer func() {
		last, cancel := fresh(ctx)
		defer cancel()
		stopHealth(last)
	}()
	p.Log.Info().Str("health", p.Health.Addr()).Msg("starting")
	if err := p.connect(ctx); err != nil {
		if ctx.Err() != nil {
			p.Log.Info().AnErr("while", err).Msg("told to stop before the start")
			return nil
		}
		return err
	}
	p.Log.Info().Msg("ready")
	return supervise(ctx, p, body)
}

// supervise runs body and ends its contexts in order. It waits for the body,
// within the bound.
func supervise(ctx context.Context, p *Process, body Body) error {
	taking, stopTaking := context.WithCancelCause(ctx)
	defer stopTaking(nil)
	working, stopWorking := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stopWorking(nil)

	closed := p.NATS.StatusChanged(nats.CLOSED)
	defer p.NATS.RemoveStatusListener(closed)
	if p.NATS.IsClosed() {
		return ErrNATSClosed
	}

	done := make(chan error, 1)
	go func() { done <- body(taking, working, p) }()

	select {
	case err := <-done:
		return verdict(taking, p.NATS, err)
	case <-closed:
		stopTaking(ErrNATSClosed)
	case <-taking.Done():
	}
	p.Health.enter(phaseStopping)
	p.Log.Info().AnErr("because", context.Cause(taking)).Stringer("timeout", p.Settings.ShutdownTimeout).Msg("stopping: no new work, finishing what is in hand")

	err, returned := within(done, p.Settings.ShutdownTimeout)
	if !returned {
		p.Log.Warn().Msg("stopping: the time is over, cutting off what is in hand")
		stopWorking(ErrShutdownTimeout)
		if err, returned = within(done, lastGrace); !returned {
			err = fmt.Errorf("%w: %s did not stop within %s", ErrWorkLeft, p.Name, p.Settings.ShutdownTimeout+lastGrace)
		}
	}
	return verdict(taking, p.NATS, err)
}

// verdict is the result of Run: the error of the body, and the loss of NATS
// when the body did not tell of it.
func verdict(taking context.Context, nc *nats.Conn, err error) error {
	if err == context.Canceled && taking.Err() != nil { // bare: it was told to stop, no more
		err = nil
	}
	if nc.IsClosed() && !errors.Is(err, ErrNATSClosed) {
		err = errors.Join(ErrNATSClosed, err)
	}
	return err
}

// within waits for the body for a time.
func within(done <-chan error, d time.Duration) (err error, returned bool) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case err = <-done:
		return err, true
	case <-t.C:
		return nil, false
	}
}
