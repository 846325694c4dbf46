package sender

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

// fallen is a tracer that panics where no attempt has begun yet, so that nothing
// makes an outcome of it.
type fallen struct{ noop.Tracer }

func (fallen) Start(context.Context, string, ...trace.SpanStartOption) (context.Context, trace.Span) {
	panic("the tracer is gone")
}

// away is a store that nobody may need.
type away struct{}

func (away) Open(_ context.Context, t breaker.Trip) (breaker.Gate, bool, error) {
	return t.Gate, false, errors.New("away")
}

func (away) Probed(_ context.Context, g breaker.Gate, _ bool, _ breaker.Trip) (breaker.Gate, bool, error) {
	return g, false, errors.New("away")
}

// A panic that unwinds the work leaves no permit behind: it counts as a failure.
func TestAPermitThatAPanicLeavesCounts(t *testing.T) {
	t.Parallel()
	settings := breaker.Settings{Threshold: 3, OpenFor: time.Hour, Probes: 1}
	breakers := breaker.New(settings, away{}, func(context.Context, breaker.Change) {})
	s := &sender{log: zerolog.Nop(), tracer: fallen{}, storing: t.Context(), maxHold: time.Minute, protect: &protection{settings: settings, breakers: breakers}}
	c := ledger.Claimed{Channel: delivery.Mail, IsPrepared: true, Gate: lane.View{ID: 1, Key: "mail$x", Breaker: lane.Closed, Version: 1}}
	work := func() {
		defer func() {
			if recover() == nil {
				t.Error("the work did not panic")
			}
		}()
		s.work(t.Context(), c, nil)
	}
	for i := range 2 {
		work()
		if known := breakers.List(); len(known) != 1 || known[0].Failures != i+1 || known[0].Refuses {
			t.Errorf("after %d panics: %+v", i+1, known)
		}
	}
	work()
	if known := breakers.List(); len(known) != 1 || !known[0].Refuses || !known[0].Unsaved || known[0].Gate.Cause != "nobody said how it ended" {
		t.Errorf("after 3 panics: %+v", known)
	}
}

// Of what an instance knows, what the rows say as well is left out.
func TestWhatDiffersFromTheRow(t *testing.T) {
	t.Parallel()
	until := time.Now().Add(time.Minute)
	open := func(key string) breaker.Gate {
		return breaker.Gate{Key: key, State: breaker.Open, Until: until, Failures: 5, Cause: "refused"}
	}
	closed := func(key string) breaker.Gate { return breaker.Gate{Key: key, State: breaker.Closed} }
	got := differing("i", []breaker.Known{
		{Gate: closed("quiet")}, {Gate: closed("counted"), Failures: 2}, {Gate: open("both"), Refuses: true}, {Gate: open("alone"), Refuses: true, Unsaved: true},
		{Gate: closed("unheard")}, {Gate: open("over")}, {Gate: closed("probed")},
	}, map[string]string{"both": "open", "unheard": "open", "probed": "half_open"})
	want := map[string]string{"counted": "closed closed", "alone": "open closed", "unheard": "closed open"}
	for _, b := range got {
		if b.Instance != "i" || want[b.Key] != b.State+" "+b.Row || (b.State == "open") != (b.Until != nil && b.Failures == 5 && b.Cause == "refused" && b.Unsaved) {
			t.Errorf("%+v", b)
		}
		delete(want, b.Key)
	}
	if len(want) > 0 {
		t.Errorf("not shown: %v", want)
	}
	many := make([]breaker.Known, 2*maxBreakers)
	for i := range many {
		many[i] = breaker.Known{Gate: closed("x"), Failures: 1}
	}
	if n := len(differing("i", many, nil)); n != maxBreakers {
		t.Errorf("%d in one answer", n)
	}
}
