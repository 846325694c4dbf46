package verify

import (
	"context"
	"fmt"
	"sync"

	"github.com/posthouse-io/posthouse/pkg/document"
)

// Asker is one verifier, or a guard in front of it.
type Asker interface {
	Name() string
	Key() string // of its breaker and lane
	Ask(ctx context.Context, d Document) document.Result
}

// Set is all configured verifiers.
type Set struct {
	verifiers []*Verifier
}

// New checks the configuration; it connects to nothing yet.
func New(c Config) (*Set, error) {
	targets, err := c.targets()
	if err != nil {
		return nil, fmt.Errorf("verifiers: %w", err)
	}
	s := &Set{}
	for _, t := range targets {
		v, err := newVerifier(t, c)
		if err != nil {
			return nil, fmt.Errorf("verifiers: %w", err)
		}
		s.verifiers = append(s.verifiers, v)
	}
	return s, nil
}

// Askers are the verifiers, in the order of the configuration.
func (s *Set) Askers() []Asker {
	list := make([]Asker, len(s.verifiers))
	for i, v := range s.verifiers {
		list[i] = v
	}
	return list
}

// Verify asks all of them.
func (s *Set) Verify(ctx context.Context, d Document) []document.Result {
	return All(ctx, s.Askers(), d)
}

// Close waits for the questions in progress and closes the kept connections.
func (s *Set) Close() error {
	for _, v := range s.verifiers {
		v.close()
	}
	return nil
}

// All asks every verifier at the same time and waits for all of them, since the
// issues of each are wanted and a rejection wins over an outage. The results are in
// the order of the askers.
func All(ctx context.Context, askers []Asker, d Document) []document.Result {
	results := make([]document.Result, len(askers))
	var wg sync.WaitGroup
	for i, a := range askers {
		wg.Go(func() { results[i] = a.Ask(ctx, d) })
	}
	wg.Wait()
	return results
}
