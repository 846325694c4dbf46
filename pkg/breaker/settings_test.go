package breaker

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestThresholdsOfTheSeed(t *testing.T) {
	t.Parallel()
	with := func(f func(*Settings)) Settings { s := defaults(); f(&s); return s }
	for name, c := range map[string]struct {
		s     Settings
		calls string // f, s, and . for a second
		open  bool
	}{
		"of the last executions":               {with(func(s *Settings) { s.Threshold, s.Executions = 3, 5 }), "fsfsf", true},
		"older than the last executions":       {with(func(s *Settings) { s.Threshold, s.Executions = 3, 5 }), "fssssfsf", false},
		"within the period":                    {with(func(s *Settings) { s.Threshold, s.Period = 3, 10*time.Second }), "fs.f.ssf", true},
		"older than the period":                {with(func(s *Settings) { s.Threshold, s.Period = 3, 10*time.Second }), "ff............f", false},
		"a minimum of executions in a period":  {with(func(s *Settings) { s.Threshold, s.Executions, s.Period = 3, 6, 10*time.Second }), "fffs", false},
		"enough executions in a period":        {with(func(s *Settings) { s.Threshold, s.Executions, s.Period = 3, 6, 10*time.Second }), "fffssf", true},
		"a rate":                               {with(func(s *Settings) { s.Rate, s.Executions, s.Period = 50, 10, time.Minute }), "sssssfffff", true},
		"below the rate":                       {with(func(s *Settings) { s.Rate, s.Executions, s.Period = 50, 10, time.Minute }), "ssssssffff", false},
		"a rate of too few":                    {with(func(s *Settings) { s.Rate, s.Executions, s.Period = 50, 10, time.Minute }), "fffffffff", false},
		"the threshold does not apply to rate": {with(func(s *Settings) { s.Rate, s.Executions, s.Period = 90, 10, time.Minute }), "fffffsssss", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(c.s)
				for _, r := range c.calls {
					switch r {
					case '.':
						time.Sleep(time.Second)
					case 'f':
						b.call(t, Failure)
					case 's':
						b.call(t, Success)
					}
				}
				if open := b.row.gate.State == Open; open != c.open {
					t.Errorf("open %v", open)
				}
			})
		})
	}
}

func TestWrongCombinationsAreRefused(t *testing.T) {
	t.Parallel()
	with := func(f func(*Settings)) Settings { s := defaults(); f(&s); return s }
	for want, s := range map[string]Settings{
		"":                          defaults(),
		"FAILURE_RATE":              with(func(s *Settings) { s.Rate = 50 }),
		"FAILURE_PERIOD":            with(func(s *Settings) { s.Rate, s.Executions = 50, 10 }),
		"CB_FAILURE_EXEC":           with(func(s *Settings) { s.Executions = 4 }),
		"CB_FAILURE_PERIOD":         with(func(s *Settings) { s.Period = time.Millisecond }),
		"CB_FAILURE_RATE: 101":      with(func(s *Settings) { s.Rate, s.Executions, s.Period = 101, 1, time.Second }),
		"CB_FAILURE_RATE: -1":       with(func(s *Settings) { s.Rate = -1 }),
		"CB_FAILURE_THRESHOLD":      with(func(s *Settings) { s.Threshold = 0 }),
		"CB_FAILURE_EXECUTIONS: -1": with(func(s *Settings) { s.Executions = -1 }),
		"-1s is less":               with(func(s *Settings) { s.Period = -time.Second }),
		"CB_OPEN_DURATION":          with(func(s *Settings) { s.OpenFor = 0 }),
		"CB_HALF_OPEN_MAX":          with(func(s *Settings) { s.Probes = 0 }),
		"CB_ON_AUTH":                with(func(s *Settings) { s.OnAuth = "" }),
	} {
		err := errors.Join(s.Check("CB_")...)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
}

func TestResetAppliesNewSettings(t *testing.T) {
	t.Parallel()
	b := newBench(defaults())
	b.call(t, Success)
	b.settings.Threshold = 2
	b.calls(t, 2, Failure)
	b.state(t, Closed)
	b.Reset("mail$mx.example")
	b.calls(t, 2, Failure)
	b.state(t, Open)
}
