package chaos

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
	"syscall"
	"time"
)

// child is a process that may be killed, stopped and told to go on. One goroutine
// waits for it.
type child struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader // nil: its output goes to the log
	done chan struct{}
}

// spawn starts a program. With order not nil it is one of our own parts: it gets
// the order as a line of JSON, answers with lines of JSON, and ends when its input
// does. The kernel kills it when this process dies.
func spawn(name string, argv, environ []string, order any, log io.Writer) (*child, error) {
	c := &child{name: name, cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})} //nolint:noctx // ended by its owner
	c.cmd.Env, c.cmd.Stderr, c.cmd.SysProcAttr = environ, log, dieWithUs()
	var err error
	if order == nil {
		c.cmd.Stdout = log
	} else {
		if c.in, err = c.cmd.StdinPipe(); err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		out, err := c.cmd.StdoutPipe()
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
		c.out = bufio.NewReader(out)
	}
	started := make(chan error, 1)
	go func() {
		defer close(c.done)
		runtime.LockOSThread() // the kernel ties the child to the thread that made it
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_, _ = c.cmd.Process.Wait() // how it ended is asked for where it matters
		}
	}()
	if err := <-started; err != nil {
		<-c.done
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if order != nil {
		if err := json.NewEncoder(c.in).Encode(order); err != nil {
			c.kill()
			return nil, fmt.Errorf("start %s: %w", name, err)
		}
	}
	return c, nil
}

// hear reads the next line of one of our own parts; it is killed when ctx ends first.
func (c *child) hear(ctx context.Context, answer any) error {
	defer context.AfterFunc(ctx, c.kill)()
	line, err := c.out.ReadBytes('\n')
	if ctx.Err() != nil {
		return fmt.Errorf("wait for %s: %w", c.name, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%s ended: see its log", c.name)
	}
	if err := json.Unmarshal(line, answer); err != nil {
		return fmt.Errorf("%s said %.100q: %w", c.name, line, err)
	}
	return nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// signal sends one; a process that is gone hears nothing.
func (c *child) signal(sig syscall.Signal) error {
	if err := c.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to %s: %w", sig, c.name, err)
	}
	return nil
}

// kill is kill -9; it returns when the process is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill() // gone already is as good
	<-c.done
	if c.in != nil {
		_ = c.in.Close()
	}
}

// term asks it to end and waits; after bound it is killed, which is an error.
func (c *child) term(bound time.Duration) error {
	if c.in != nil {
		_ = c.in.Close()
	} else if err := c.signal(syscall.SIGTERM); err != nil {
		return err
	}
	late := time.NewTimer(bound)
	defer late.Stop()
	select {
	case <-c.done:
		return nil
	case <-late.C:
		c.kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM", c.name, bound)
	}
}
