package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// process is a running child and the goroutine that waits for it.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the child has ended and was waited for

	asked atomic.Bool // somebody told it to end
}

const killBound = 10 * time.Second // for a child that was told to end at once

// spawn starts cmd in a process group of its own (a Ctrl-C at the terminal is
// ours to handle, not the server's) and has the system send it death when this
// process dies, where the system can.
//
// Linux sends that signal when the creating thread ends, not the process. The
// goroutine therefore keeps its thread for as long as the child lives. When the
// child ends without being asked to, died hears how.
func spawn(cmd *exec.Cmd, death syscall.Signal, died func(error)) (*process, error) {
	p := &process{cmd: cmd, done: make(chan struct{})}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	dieWithOwner(cmd.SysProcAttr, death)
	started := make(chan error, 1)
	go func() {
		defer close(p.done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		if err = cmd.Wait(); !p.asked.Load() {
			died(err)
		}
	}()
	if err := <-started; err != nil {
		<-p.done
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// end sends sig and waits. When ctx ends first it sends SIGKILL, waits for that,
// and returns the context's cause.
func (p *process) end(ctx context.Context, sig syscall.Signal) error {
	p.asked.Store(true)
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %s to process %d: %w", sig, p.pid(), err)
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		_ = p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("process %d did not end in time and was killed: %w", p.pid(), context.Cause(ctx))
	}
}

// quit ends the child at once and waits.
func (p *process) quit() {
	p.asked.Store(true)
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	late := time.NewTimer(killBound)
	defer late.Stop()
	select {
	case <-p.done:
	case <-late.C:
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}
