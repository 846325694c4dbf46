package chaos

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/posthouse-io/posthouse/pkg/local/child"
)

// Mend takes every fault away: wires are sound, servers run, services live.
func (s *Site) Mend(ctx context.Context) error {
	s.Mail.Heal()
	for _, v := range s.Services {
		v.Database.Heal()
		v.Bus.Heal()
	}
	var errs []error
	if s.Postgres.PID() == 0 {
		errs = append(errs, s.Postgres.Restart(ctx))
	}
	if !s.nats.Alive() {
		errs = append(errs, s.StartNATS(ctx))
	}
	errs = append(errs, s.nats.Signal(contSignal))
	if !s.sink.Alive() {
		errs = append(errs, s.StartSink(ctx))
	}
	for _, v := range s.Services {
		errs = append(errs, v.Start())
	}
	return errors.Join(errs...)
}

// Close ends everything and waits for it, also when ctx has ended.
func (s *Site) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	s.sampler.end()
	for _, v := range s.Services {
		v.end()
	}
	if s.Mail != nil {
		s.Mail.Close()
	}
	if s.NATS != nil {
		s.NATS.Close()
	}
	for _, part := range []*child.Process{s.nats, s.sink} {
		if part != nil {
			part.Kill()
		}
	}
	if s.DB != nil {
		s.DB.Close()
	}
	if s.Postgres != nil {
		s.Postgres.Kill()
		errs = append(errs, s.Postgres.Stop(ctx))
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	if s.Dir != "" && !s.cfg.Keep {
		errs = append(errs, os.RemoveAll(s.Dir))
	} else if s.Dir != "" {
		errs = append(errs, os.RemoveAll(filepath.Join(s.Dir, "postgres")), os.RemoveAll(filepath.Join(s.Dir, "nats")))
	}
	return errors.Join(errs...)
}
