package chaos

import (
	"context"
	"time"
)

// deed is something that the nemesis does, with its weight in the draw.
type deed struct {
	name   string
	weight int
	do     func(context.Context, *Run) error
}

// deeds are what it draws from. Each mends what it broke before it returns, but
// not what follows from it.
func deeds() []deed {
	someone := func(r *Run) *Service { return r.Services[r.Rand.IntN(len(r.Services))] }
	short := func(r *Run) time.Duration { return time.Duration(100+r.Rand.IntN(2500)) * time.Millisecond }
	onePoint := func(ctx context.Context, r *Run) error {
		list := points()
		p := list[r.Rand.IntN(len(list))]
		err := r.crash(ctx, p)
		if err != nil && ctx.Err() == nil {
			r.note("%v", err) // nothing of the kind came by: no fault, then
			r.Service(p.service).Database.Heal()
			r.Service(p.service).Bus.Heal()
			r.Mail.Heal()
			return r.Service(p.service).Start()
		}
		return err
	}
	return []deed{
		{"kill", 6, func(ctx context.Context, r *Run) error {
			v := someone(r)
			v.Kill()
			if err := pause(ctx, short(r)/4); err != nil {
				return err
			}
			return v.Start()
		}},
		{"point", 6, onePoint},
		{"stop", 4, func(ctx context.Context, r *Run) error {
			v := someone(r)
			if err := v.Stop(); err != nil {
				return err
			}
			if err := pause(ctx, 2*short(r)); err != nil {
				return err
			}
			return v.Continue()
		}},
		{"term", 3, func(_ context.Context, r *Run) error {
			v := someone(r)
			if err := v.Term(); err != nil {
				return err
			}
			return v.Start()
		}},
		{"wire", 6, func(ctx context.Context, r *Run) error {
			v := someone(r)
			wires := []*Proxy{v.Database, v.Bus, r.Mail}
			list := ailments()
			s := list[r.Rand.IntN(len(list))]
			s.last = short(r)
			return r.sicken(ctx, wires[r.Rand.IntN(3):][:1], s)
		}},
		{"reset", 3, func(_ context.Context, r *Run) error {
			v := someone(r)
			w := []*Proxy{v.Database, v.Bus, r.Mail}[r.Rand.IntN(3)]
			r.note("%s: every connection is reset", w.name)
			w.Reset()
			return nil
		}},
		{"terminate", 2, func(ctx context.Context, r *Run) error { return r.Terminate(ctx, 5, 200*time.Millisecond) }},
		{"database", 2, func(ctx context.Context, r *Run) error {
			if r.Rand.IntN(2) == 0 {
				r.KillPostgres()
			} else if err := r.StopPostgres(ctx); err != nil {
				return err
			}
			if err := pause(ctx, short(r)); err != nil {
				return err
			}
			return r.StartPostgres(ctx)
		}},
		{"bus", 2, func(ctx context.Context, r *Run) error {
			r.KillNATS()
			if err := pause(ctx, short(r)); err != nil {
				return err
			}
			return r.StartNATS(ctx)
		}},
		{"sleeping bus", 1, func(ctx context.Context, r *Run) error {
			if err := r.StopNATS(); err != nil {
				return err
			}
			if err := pause(ctx, short(r)); err != nil {
				return err
			}
			return r.ContinueNATS()
		}},
		{"mail server", 2, func(ctx context.Context, r *Run) error {
			r.KillSink()
			if err := pause(ctx, short(r)); err != nil {
				return err
			}
			return r.StartSink(ctx)
		}},
	}
}

// nemesis does one thing after another for so long. What it does follows from the
// seed; when it happens follows from the machine.
func (r *Run) nemesis(ctx context.Context, length time.Duration) error {
	list := deeds()
	total := 0
	for _, d := range list {
		total += d.weight
	}
	for end := time.Now().Add(length); time.Now().Before(end); {
		n := r.Rand.IntN(total)
		for _, d := range list {
			if n -= d.weight; n < 0 {
				if err := d.do(ctx, r); err != nil {
					return err
				}
				break
			}
		}
		if err := pause(ctx, time.Duration(200+r.Rand.IntN(1300))*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// Nemesis is F20 for as long as wanted.
func Nemesis(length time.Duration) Scenario {
	s := Find("F20")[0]
	s.Fault = "random faults from a seed for " + length.String()
	s.Bound = length + 10*time.Minute
	s.Config.StreamBytes = 8 << 30 // an hour of events stays on the stream
	s.Do = func(ctx context.Context, r *Run) error { return r.nemesis(ctx, length) }
	return s
}
