package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/local"
)

// The roles of a child: the first argument after its program.
const (
	RoleNATS   = "bench-nats"
	RoleSender = "bench-sender"
)

// child is a part of the measurement in a process of its own. It gets one line
// of JSON on standard input, answers with lines of JSON on standard output, and
// ends when its input does, so it never outlives us.
type child struct {
	role string
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	end  sync.Once
}

// spawn starts this program in a role, in a process group of its own: a Ctrl-C at
// the terminal is ours to handle.
func spawn(program []string, role string, order any, log io.Writer) (*child, error) {
	if len(program) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", role, err)
		}
		program = []string{self}
	}
	c := &child{role: role, cmd: exec.Command(program[0], append(program[1:len(program):len(program)], role)...)} //nolint:noctx // it ends with its input
	c.cmd.Stderr = log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	c.out = bufio.NewReader(out)
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	if err := json.NewEncoder(c.in).Encode(order); err != nil {
		c.kill()
		return nil, fmt.Errorf("start %s: %w", role, err)
	}
	return c, nil
}

// hear reads the next line of the child, or ends it when ctx does.
func (c *child) hear(ctx context.Context, answer any) error {
	defer context.AfterFunc(ctx, c.kill)()
	line, err := c.out.ReadBytes('\n')
	if ctx.Err() != nil {
		return fmt.Errorf("wait for %s: %w", c.role, context.Cause(ctx))
	}
	if err != nil {
		return fmt.Errorf("%s ended: see the log", c.role)
	}
	if err := json.Unmarshal(line, answer); err != nil {
		return fmt.Errorf("%s said %.100q: %w", c.role, line, err)
	}
	return nil
}

// stop ends the child in order and waits for it.
func (c *child) stop() {
	c.end.Do(func() {
		_ = c.in.Close()
		late := time.AfterFunc(15*time.Second, func() { _ = c.cmd.Process.Kill() })
		defer late.Stop()
		_, _ = io.Copy(io.Discard, c.out)
		_ = c.cmd.Wait()
	})
}

// kill ends it as a crash would and waits for it.
func (c *child) kill() {
	c.end.Do(func() {
		_ = c.cmd.Process.Kill()
		_ = c.in.Close()
		_ = c.cmd.Wait()
	})
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// natsOrder is what a NATS child is told, natsAnswer what it says.
type natsOrder struct {
	Dir        string `json:"dir"`
	SyncAlways bool   `json:"sync_always"`
}

type natsAnswer struct {
	URL   string `json:"url,omitempty"`
	Error string `json:"error,omitempty"`
}

// ServeNATS is the role bench-nats: a NATS server until in ends.
func ServeNATS(ctx context.Context, in io.Reader, out io.Writer) error {
	var order natsOrder
	lines := bufio.NewReader(in)
	if err := readOrder(lines, &order); err != nil {
		return err
	}
	server, err := local.StartNATS(ctx, local.NATSConfig{Dir: filepath.Clean(order.Dir), SyncAlways: order.SyncAlways, Log: zerolog.Nop()})
	if err != nil {
		return errors.Join(err, json.NewEncoder(out).Encode(natsAnswer{Error: err.Error()}))
	}
	err = json.NewEncoder(out).Encode(natsAnswer{URL: server.URL()})
	_, _ = io.Copy(io.Discard, lines)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(err, server.Stop(stopping))
}

func readOrder(lines *bufio.Reader, order any) error {
	line, err := lines.ReadBytes('\n')
	if err != nil {
		return errors.New("this command is started by `posthouse bench`, which tells it what to do")
	}
	return json.Unmarshal(line, order)
}

// startNATS runs a NATS server on a folder and returns it with its address.
func startNATS(ctx context.Context, program []string, order natsOrder, log io.Writer) (*child, string, error) {
	c, err := spawn(program, RoleNATS, order, log)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var answer natsAnswer
	if err = c.hear(ctx, &answer); err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		c.stop()
		return nil, "", err
	}
	return c, answer.URL, nil
}
