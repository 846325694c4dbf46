// Package child runs a program in a process of its own that may be killed, stopped and
// told to go on, as tests of crashes and measurements need it.
//
// A child dies with us: the kernel kills it (on Linux), and one that takes an order ends
// when its input does. It decides nothing; it assumes that its owner kills or ends it.
// One goroutine waits for each child and ends with it.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Process is one child. Safe for concurrent use, but for Hear.
type Process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader // nil: its output goes to the log
	done chan struct{}
	exit *os.ProcessState // once done
	end  sync.Once
}

// Start starts a program under a name for errors. With order not nil it gets the order
// as a line of JSON, answers with lines of JSON, and ends when its input does; else its
// output goes to log, as its errors do always.
func Start(name string, argv, environ []string, order any, log io.Writer) (*Process, error) {
	p := &Process{name: name, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})} //nolint:noctx // ended by its owner
	p.cmd.Env, p.cmd.Stderr, p.cmd.SysProcAttr = environ, log, dieWithUs()
	var err error
	if order == nil {
		p.cmd.Stdout = log
	} else {
		if p.in, err = p.cmd.StdinPipe(); err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		out, err := p.cmd.StdoutPipe()
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		p.out = bufio.NewReader(out)
	}
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		runtime.LockOSThread() // the kernel ties the child to the thread that made it
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.exit, _ = p.cmd.Process.Wait()
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if order != nil {
		if err := json.NewEncoder(p.in).Encode(order); err != nil {
			p.Kill()
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
	}
	return p, nil
}

// Hear reads the next line of one that has an order; it is killed when ctx ends first.
func (p *Process) Hear(ctx context.Context, answer any) error {
	defer context.AfterFunc(ctx, p.Kill)()
	line, err := p.out.ReadBytes('\n')
	if ctx.Err() != nil {
		return fmt.Errorf("wait for %s: %w", p.name, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%s ended: see its log", p.name)
	}
	if err := json.Unmarshal(line, answer); err != nil {
		return fmt.Errorf("%s said %.100q: %w", p.name, line, err)
	}
	return nil
}

// PID is its process number.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Alive tells whether it has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Signal sends one; a process that is gone hears nothing.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", sig, p.name, err)
	}
	return nil
}

// Wait returns the exit code of one that ends by itself; -1: a signal ended it.
func (p *Process) Wait(bound time.Duration) (int, error) {
	late := time.NewTimer(bound)
	defer late.Stop()
	select {
	case <-late.C:
		return 0, fmt.Errorf("%s has not ended within %s", p.name, bound)
	case <-p.done:
		p.gone()
	}
	if p.exit == nil {
		return 0, fmt.Errorf("%s has ended, and nobody knows how", p.name)
	}
	return p.exit.ExitCode(), nil
}

// Kill is kill -9; it returns when the process is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // gone already is as good
	p.gone()
}

// gone returns when the process has ended and the log has all that it said there. Its
// answers can be heard until somebody asks for its end.
func (p *Process) gone() {
	<-p.done
	p.end.Do(func() { _ = p.cmd.Wait() }) // closes the pipes, and waits for the copying
}

// Term asks it to end and waits; after bound it is killed, which is an error.
func (p *Process) Term(bound time.Duration) error {
	defer p.gone()
	if p.in != nil {
		_ = p.in.Close()
		var draining sync.WaitGroup // what it still says must not hold it
		draining.Go(func() { _, _ = io.Copy(io.Discard, p.out) })
		defer draining.Wait()
	} else if err := p.Signal(syscall.SIGTERM); err != nil {
		p.Kill()
		return err
	}
	late := time.NewTimer(bound)
	defer late.Stop()
	select {
	case <-p.done:
		return nil
	case <-late.C:
		p.Kill()
		return fmt.Errorf("%s did not end within %s of being asked to", p.name, bound)
	}
}
