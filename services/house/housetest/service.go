package housetest

import (
	"context"
	"errors"
	"time"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	deadletter "github.com/posthouse-io/posthouse/services/dead-letter"
	"github.com/posthouse-io/posthouse/services/forwarder"
	"github.com/posthouse-io/posthouse/services/sender"
	"github.com/posthouse-io/posthouse/services/settings"
	verifierretry "github.com/posthouse-io/posthouse/services/verifier-retry"
	"github.com/posthouse-io/posthouse/services/watchdog"
)

// The services that a site knows.
const (
	Sender     = "sender"
	Watchdog   = "watchdog"
	DeadLetter = "dead-letter"
	Forwarder  = "forwarder"
	Verifier   = "verifier-retry"
)

const stopBound = 60 * time.Second

// Service is one running in this process.
type Service struct {
	Log    *Logbook
	site   *Site
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Start runs a service with the settings of the site and these. It ends with the
// test at the latest; an error of its Run is one of the test.
func (s *Site) Start(name string, extra map[string]string) *Service {
	s.T.Helper()
	v := &Service{Log: &Logbook{}, site: s, name: name, done: make(chan struct{})}
	run, err := v.load(s.Environ(extra))
	if err != nil {
		s.T.Fatalf("%s: %v", name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	v.cancel = cancel
	go func() {
		defer close(v.done)
		v.err = run(ctx)
	}()
	s.T.Cleanup(func() { v.Stop(); v.Log.show(s.T, name) })
	return v
}

// StartAll runs one of each.
func (s *Site) StartAll() (sender, watchdog, deadLetter *Service) {
	s.T.Helper()
	return s.Start(Sender, nil), s.Start(Watchdog, nil), s.Start(DeadLetter, nil)
}

func (v *Service) load(environ []string) (func(context.Context) error, error) {
	switch v.name {
	case Sender:
		cfg, _, err := daemon.Load[sender.Config](environ, settings.Names())
		cfg.LogTo = v.Log
		return func(ctx context.Context) error { return sender.Run(ctx, cfg) }, err
	case Watchdog:
		cfg, _, err := daemon.Load[watchdog.Config](environ, settings.Names())
		cfg.LogTo = v.Log
		return func(ctx context.Context) error { return watchdog.Run(ctx, cfg) }, err
	case Forwarder:
		cfg, _, err := daemon.Load[forwarder.Config](environ, settings.Names())
		cfg.LogTo = v.Log
		return func(ctx context.Context) error { return forwarder.Run(ctx, cfg) }, err
	case Verifier:
		cfg, _, err := daemon.Load[verifierretry.Config](environ, settings.Names())
		cfg.LogTo = v.Log
		return func(ctx context.Context) error { return verifierretry.Run(ctx, cfg) }, err
	case DeadLetter:
		cfg, _, err := daemon.Load[deadletter.Config](environ, settings.Names())
		cfg.LogTo = v.Log
		return func(ctx context.Context) error { return deadletter.Run(ctx, cfg) }, err
	}
	return nil, errors.New("no such service")
}

// Tell is SIGTERM: it tells the service to stop and does not wait.
func (v *Service) Tell() { v.cancel() }

// Done is closed when Run has returned.
func (v *Service) Done() <-chan struct{} { return v.done }

// Stop tells the service to stop, waits, and tells how long that took.
func (v *Service) Stop() time.Duration {
	v.site.T.Helper()
	began := time.Now()
	v.cancel()
	select {
	case <-v.done:
		if v.err != nil {
			v.site.T.Errorf("%s ended with: %v", v.name, v.err)
		}
	case <-time.After(stopBound):
		v.site.T.Errorf("%s did not stop within %s", v.name, stopBound)
	}
	return time.Since(began)
}
