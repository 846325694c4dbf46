package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/local"
	"github.com/posthouse-io/posthouse/pkg/local/child"
)

// The roles of a child: the first argument after its program.
const (
	RoleNATS   = "bench-nats"
	RoleSender = "bench-sender"
)

// spawn starts this program in a role.
func spawn(program []string, role string, order any, log io.Writer) (*child.Process, error) {
	if len(program) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("start %s: %w", role, err)
		}
		program = []string{self}
	}
	return child.Start(role, append(program[:len(program):len(program)], role), os.Environ(), order, log)
}

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
func startNATS(ctx context.Context, program []string, order natsOrder, log io.Writer) (*child.Process, string, error) {
	c, err := spawn(program, RoleNATS, order, log)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var answer natsAnswer
	if err = c.Hear(ctx, &answer); err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		c.Kill()
		return nil, "", err
	}
	return c, answer.URL, nil
}
