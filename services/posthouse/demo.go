package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/services/house"
	"github.com/posthouse-io/posthouse/streams"
)

// demoPatience bounds the wait for the last promise.
const demoPatience = 60 * time.Second

type demoCommand struct {
	JSON bool `name:"json" help:"Print one JSON object per delivery."`
	Keep bool `help:"Keep the data folder and the log."`
}

func (c *demoCommand) Run(t *terminal) error {
	// In the system's folder for temporary files, since the PostgreSQL account
	// must be able to enter it.
	dir, err := os.MkdirTemp("", "posthouse-demo-")
	if err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	logFile, err := os.Create(filepath.Join(dir, "demo.log"))
	if err != nil {
		return err
	}
	defer func() { _ = logFile.Close() }()
	sink, err := smtpsink.Start(smtpsink.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = sink.Close() }()

	d := &demo{t: t, json: c.JSON, sink: sink}
	if err := d.house(dir, logFile); err != nil {
		return fmt.Errorf("%w\nthe log and the data are kept in %s", err, dir)
	}
	if c.Keep {
		d.say("The log and the data are kept in %s\n", dir)
		return nil
	}
	return os.RemoveAll(dir)
}

// demo is one run: what was published and what was seen.
type demo struct {
	t    *terminal
	json bool
	sink *smtpsink.Sink

	mu     sync.Mutex
	events map[string][]*delivery.Event // by request id, in order of arrival
	alerts map[string]string            // dead letters by key: subject
	news   chan struct{}
}

// say tells a person; with --json, standard output is for machines.
func (d *demo) say(format string, args ...any) {
	if !d.json {
		fmt.Fprintf(d.t.out, format, args...)
	}
}

// house starts everything, plays the scenes and stops everything.
func (d *demo) house(dir string, log *os.File) error {
	environ := environment(d.t.environ)
	maps.Copy(environ, sinkSettings(d.sink))
	maps.Copy(environ, demoSettings())
	delete(environ, "NATS_URL")
	ctx, stop := context.WithCancel(d.t.ctx)
	defer stop()
	var played error
	var playing sync.WaitGroup
	d.say("Starting a private PostgreSQL, NATS with JetStream, and every service ...\n")
	started := time.Now()
	err := house.Run(ctx, house.Options{Dir: dir, Environ: environ, LogTo: log, Log: daemon.NewLogger(log, daemon.Settings{}, "demo", "")}, func(h house.House) {
		d.say("Up after %.1f s: NATS at %s, mail sink at %s.\n\n", time.Since(started).Seconds(), h.NATSURL, d.sink.Addr())
		playing.Go(func() {
			defer stop()
			played = d.play(ctx, h)
		})
	})
	stop()
	playing.Wait()
	if d.t.ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return errors.Join(played, err)
}

// play publishes the scenes, watches what follows and compares it with what was
// promised.
func (d *demo) play(ctx context.Context, h house.House) error {
	ctx, cancel := context.WithTimeout(ctx, demoPatience)
	defer cancel()
	nc, err := nats.Connect(h.NATSURL)
	if err != nil {
		return err
	}
	defer nc.Close()
	c, err := client.New(nc, "")
	if err != nil {
		return err
	}
	d.events, d.alerts, d.news = make(map[string][]*delivery.Event), make(map[string]string), make(chan struct{}, 1)
	begin := time.Now()
	watching, endWatch := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	watchers.Go(func() { _ = c.Watch(watching, client.Filter{Since: begin}, d.seen) })
	watchers.Go(func() { _ = c.WatchDeadLetters(watching, begin, d.alerted) })
	defer watchers.Wait()
	defer endWatch()

	scenes := demoScenes(begin)
	if err := d.publish(ctx, nc, scenes); err != nil {
		return err
	}
	for !d.complete(scenes) {
		select {
		case <-d.news:
		case <-ctx.Done():
			if d.t.ctx.Err() == nil {
				d.say("Not everything happened within %s.\n", demoPatience)
			}
			return d.report(context.WithoutCancel(ctx), c, scenes)
		}
	}
	d.say("Everything has come to its end after %.1f s.\n\n", time.Since(begin).Seconds())
	return d.report(ctx, c, scenes)
}

// publish sends the requests with plain nats.go, as any application would.
func (d *demo) publish(ctx context.Context, nc *nats.Conn, scenes []scene) error {
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	subject := streams.Send(string(delivery.Mail), demoTenant)
	for _, s := range scenes {
		if _, err := js.Publish(ctx, subject, []byte(s.body)); err != nil {
			return fmt.Errorf("publish %q: %w", s.title, err)
		}
	}
	d.say("Published %d requests to %s.\n", len(scenes), subject)
	return nil
}

func (d *demo) seen(ev *delivery.Event) error {
	d.mu.Lock()
	d.events[ev.RequestID] = append(d.events[ev.RequestID], ev)
	d.mu.Unlock()
	d.say("  %s\n", eventLine(ev))
	d.poke()
	return nil
}

func (d *demo) alerted(subject string, body []byte) error {
	var key struct {
		Event string `json:"event"`
	}
	if err := unmarshal(body, &key); err != nil {
		return fmt.Errorf("dead letter on %s: %w", subject, err)
	}
	d.mu.Lock()
	d.alerts[key.Event] = subject
	d.mu.Unlock()
	d.say("  ALERT %s\n        %s\n", subject, bytes.TrimSpace(body))
	d.poke()
	return nil
}

func (d *demo) poke() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// complete tells whether each promise has been kept or broken for good.
func (d *demo) complete(scenes []scene) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	letters := 0
	for _, s := range scenes {
		if s.poison != "" {
			letters++
			continue
		}
		if s.repeat {
			continue
		}
		last := lastOf(d.events[s.id])
		if last == nil || !last.State.Final() {
			return false
		}
		if last.State != delivery.Sent {
			letters++
		}
	}
	return len(d.alerts) >= letters
}

// lastOf is the event with the highest version.
func lastOf(events []*delivery.Event) (last *delivery.Event) {
	for _, ev := range events {
		if last == nil || ev.Version > last.Version {
			last = ev
		}
	}
	return last
}
