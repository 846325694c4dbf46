package chaos

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
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
)

// The parts that this program plays itself, in processes of their own: the first
// argument after its name.
const (
	PartNATS = "part-nats"
	PartSink = "part-sink"
)

// natsOrder is what a NATS server is told.
type natsOrder struct {
	Dir      string `json:"dir"`
	Port     int    `json:"port"` // 0: a free one
	MaxStore int64  `json:"max_store"`
}

// sinkOrder is what a mail server is told.
type sinkOrder struct {
	Addr  string        `json:"addr"` // empty: a free port of 127.0.0.1
	File  string        `json:"file"` // its ledger, synced before each reply
	Delay time.Duration `json:"delay"`
}

type partAnswer struct {
	Addr  string `json:"addr,omitempty"`
	Error string `json:"error,omitempty"`
}

// Part plays the part that args name, until in ends; false: args name none. A
// main or TestMain calls it first, with os.Args[1:].
func Part(ctx context.Context, args []string, in io.Reader, out io.Writer) (bool, error) {
	if len(args) != 1 || args[0] != PartNATS && args[0] != PartSink {
		return false, nil
	}
	orders := bufio.NewReader(in)
	line, err := orders.ReadBytes('\n')
	if err != nil {
		return true, errors.New("this part is started by the chaos suite, which tells it what to do")
	}
	play := playNATS
	if args[0] == PartSink {
		play = playSink
	}
	addr, end, err := play(ctx, line)
	if err != nil {
		return true, errors.Join(err, json.NewEncoder(out).Encode(partAnswer{Error: err.Error()}))
	}
	err = json.NewEncoder(out).Encode(partAnswer{Addr: addr})
	_, _ = io.Copy(io.Discard, orders)
	return true, errors.Join(err, end())
}

func playNATS(ctx context.Context, line []byte) (string, func() error, error) {
	var o natsOrder
	if err := json.Unmarshal(line, &o); err != nil {
		return "", nil, fmt.Errorf("part nats: %w", err)
	}
	server, err := local.StartNATS(ctx, local.NATSConfig{Dir: filepath.Clean(o.Dir), Port: o.Port, SyncAlways: true, MaxStore: o.MaxStore,
		Log: zerolog.New(os.Stderr).With().Timestamp().Logger()})
	if err != nil {
		return "", nil, err
	}
	return server.URL(), func() error {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return server.Stop(stopping)
	}, nil
}

func playSink(_ context.Context, line []byte) (string, func() error, error) {
	var o sinkOrder
	if err := json.Unmarshal(line, &o); err != nil {
		return "", nil, fmt.Errorf("part sink: %w", err)
	}
	s, err := smtpsink.Start(smtpsink.Options{Addr: o.Addr, File: o.File, Delay: func() time.Duration { return o.Delay }})
	if err != nil {
		return "", nil, err
	}
	return fmt.Sprintf("%s:%d", s.Host(), s.Port()), s.Close, nil
}

// startPart starts one of our own parts and returns where it listens.
func startPart(ctx context.Context, self []string, part string, order any, log io.Writer) (*child.Process, string, error) {
	argv := append(append([]string{}, self...), part)
	c, err := child.Start(part, argv, os.Environ(), order, log)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var answer partAnswer
	if err = c.Hear(ctx, &answer); err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	if err != nil {
		c.Kill()
		return nil, "", fmt.Errorf("%s: %w", part, err)
	}
	return c, answer.Addr, nil
}
