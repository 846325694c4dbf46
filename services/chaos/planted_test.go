package chaos

import (
	"slices"
	"testing"
	"time"
)

// What a wrong program would do is done to a real site; the oracle finds it.
func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	for _, p := range PlantedBugs() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			bin := programs(t)
			defer takeTurn()()
			p.Settle = 3 * time.Second // some never come to rest
			r, _, err := Execute(t.Context(), p.Scenario, Options{Bin: bin, Drop: true, Seed: 1, Say: t.Logf})
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(r.Violations, func(v Violation) bool { return v.Invariant == p.Expect && v.Text != "" }) {
				t.Errorf("%s: nothing was found under %s, only %v", p.Bug, p.Expect, r.Violations)
			}
		})
	}
}
