// Package shield stands between this process and its verifiers: a circuit breaker
// for each, so that one that is away is not asked about every document anew.
//
// It decides whether a verifier is asked now. The breakers are this process's own: a
// verifier is asked by few processes, and not by a claim that could count for all.
// While one is open its answer is "unavailable", which is not its failure. In half
// open so many questions go out as the settings allow; one that we stopped ourselves
// frees its place. It starts no goroutine.
package shield

import (
	"context"
	"sync"
	"time"

	"github.com/posthouse-io/posthouse/pkg/breaker"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/verify"
)

// CodeOpen is why a verifier was not asked.
const CodeOpen = "CIRCUIT_OPEN"

// Askers puts a breaker in front of each. changed is told of each change of state,
// from the goroutine of a question.
func Askers(askers []verify.Asker, s breaker.Settings, changed func(context.Context, breaker.Change)) []verify.Asker {
	memory := &store{gates: make(map[string]*gate)}
	set := breaker.New(s, memory, changed)
	guarded := make([]verify.Asker, len(askers))
	for i, a := range askers {
		guarded[i] = &shielded{Asker: a, set: set, store: memory}
	}
	return guarded
}

type shielded struct {
	verify.Asker
	set   *breaker.Set
	store *store
}

// Ask asks, unless the breaker is open.
func (g *shielded) Ask(ctx context.Context, d verify.Document) document.Result {
	seen, free := g.store.enter(g.Key())
	if !free {
		return g.away(seen)
	}
	permit, rejected := g.set.Acquire(seen)
	if rejected != nil {
		g.store.leave(seen)
		return g.away(rejected.Gate)
	}
	result := breaker.Unsaid
	cause := "the question was never answered"
	defer func() {
		_ = permit.Done(ctx, result, cause) // the store is memory: it takes everything
		g.store.leave(seen)                 // not before: the next may come in
	}()
	r := g.Asker.Ask(ctx, d)
	switch {
	case r.Ours:
		result = breaker.Excluded
	case r.Verdict == document.VerdictUnavailable && r.Server:
		result, cause = breaker.Failure, r.Code+" "+r.Text
	default:
		result = breaker.Success
	}
	return r
}

func (g *shielded) away(seen breaker.Gate) document.Result {
	return document.Result{Verifier: g.Name(), Key: g.Key(), Verdict: document.VerdictUnavailable, Code: CodeOpen, Text: breaker.Message(seen, time.Now())}
}

// store is what a lane's row is elsewhere.
type store struct {
	mu    sync.Mutex
	gates map[string]*gate
}

type gate struct {
	breaker.Gate
	probes, probed, asking int
}

// enter tells what is known of a verifier, and whether it may be asked; in half open
// that takes a place, which leave frees.
func (s *store) enter(key string) (breaker.Gate, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.at(key)
	if g.State == breaker.Open && !time.Now().Before(g.Until) {
		g.State, g.probed, g.asking = breaker.HalfOpen, 0, 0
		g.Version++
	}
	switch {
	case g.State == breaker.Closed:
		return g.Gate, true
	case g.State == breaker.HalfOpen && g.asking+g.probed < g.probes:
		g.asking++
		return g.Gate, true
	}
	return g.Gate, false
}

func (s *store) leave(seen breaker.Gate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.at(seen.Key); g.State == breaker.HalfOpen && g.Version == seen.Version && g.asking > 0 {
		g.asking--
	}
}

func (s *store) at(key string) *gate {
	g, ok := s.gates[key]
	if !ok {
		g = &gate{Gate: breaker.Gate{Key: key, State: breaker.Closed}}
		s.gates[key] = g
	}
	return g
}

// Open opens a closed one.
func (s *store) Open(_ context.Context, t breaker.Trip) (breaker.Gate, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.at(t.Gate.Key)
	if g.State != breaker.Closed {
		return g.Gate, false, nil
	}
	g.shut(t)
	g.Failures = t.Failures
	return g.Gate, true, nil
}

func (g *gate) shut(t breaker.Trip) {
	g.State, g.OpenedAt, g.Until, g.Cause, g.probes = breaker.Open, time.Now(), time.Now().Add(t.For), t.Cause, max(t.Probes, 1)
	g.Version++
}

// Probed books a probe of this half-open period.
func (s *store) Probed(_ context.Context, probe breaker.Gate, success bool, t breaker.Trip) (breaker.Gate, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.at(probe.Key)
	switch {
	case g.State != breaker.HalfOpen || g.Version != probe.Version:
		return g.Gate, false, nil
	case !success:
		g.shut(t)
		g.Failures++
	default:
		if g.probed++; g.probed >= g.probes {
			g.State, g.Failures, g.Until = breaker.Closed, 0, time.Time{}
			g.Version++
		}
	}
	return g.Gate, true, nil
}
