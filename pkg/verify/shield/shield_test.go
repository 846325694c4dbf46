package shield_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/verify"
	"github.com/posthouse-io/posthouse/pkg/verify/shield"
)

// verifier answers what it is told to, and counts.
type verifier struct {
	asked  atomic.Int64
	answer atomic.Pointer[document.Result]
	takes  time.Duration
}

func (v *verifier) Name() string { return "v" }
func (v *verifier) Key() string  { return "verifier$v.example" }
func (v *verifier) Ask(context.Context, verify.Document) document.Result {
	v.asked.Add(1)
	time.Sleep(v.takes)
	return *v.answer.Load()
}

func settings() breaker.Settings {
	return breaker.Settings{Threshold: 3, OpenFor: time.Minute, Probes: 1, OnAuth: "fail", DeferMax: time.Hour, MinRejected: time.Second}
}

var (
	passed = document.Result{Verifier: "v", Verdict: document.VerdictPassed}
	away   = document.Result{Verifier: "v", Verdict: document.VerdictUnavailable, Server: true, Code: "HTTP_503"}
	ours   = document.Result{Verifier: "v", Verdict: document.VerdictUnavailable, Ours: true}
)

func TestAVerifierThatIsAwayIsNotAskedAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &verifier{}
		var states []breaker.State
		a := shield.Askers([]verify.Asker{v}, settings(), func(_ context.Context, c breaker.Change) { states = append(states, c.To.State) })[0]
		ask := func(answer document.Result) document.Result {
			v.answer.Store(&answer)
			return a.Ask(t.Context(), verify.Document{})
		}
		for range 10 {
			ask(ours) // our own stop says nothing
		}
		for range 3 {
			ask(away)
		}
		before := v.asked.Load()
		for range 50 {
			if r := ask(passed); r.Verdict != document.VerdictUnavailable || r.Code != shield.CodeOpen || r.Server || r.Text == "" {
				t.Fatalf("%+v", r)
			}
		}
		if v.asked.Load() != before {
			t.Error("an open breaker asks")
		}
		time.Sleep(time.Minute)
		for range 5 {
			if r := ask(ours); !r.Ours { // frees its place
				t.Fatalf("%+v", r)
			}
		}
		if r := ask(away); r.Code != "HTTP_503" {
			t.Fatalf("%+v", r)
		}
		if r := ask(passed); r.Code != shield.CodeOpen {
			t.Fatalf("a failed probe did not open it again: %+v", r)
		}
		time.Sleep(time.Minute)
		for range 3 {
			if r := ask(passed); r.Verdict != document.VerdictPassed {
				t.Fatalf("%+v", r)
			}
		}
		if len(states) != 3 || states[2] != breaker.Closed {
			t.Errorf("told %v", states)
		}
	})
}

func TestOneProbeAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &verifier{takes: time.Second}
		v.answer.Store(&away)
		a := shield.Askers([]verify.Asker{v}, settings(), func(context.Context, breaker.Change) {})[0]
		for range 3 {
			a.Ask(t.Context(), verify.Document{})
		}
		time.Sleep(time.Minute)
		before := v.asked.Load()
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() { a.Ask(t.Context(), verify.Document{}) })
		}
		wg.Wait()
		if n := v.asked.Load() - before; n != 1 {
			t.Errorf("%d probes at once", n)
		}
	})
}
