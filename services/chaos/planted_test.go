package chaos

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Programs that are wrong run on a real site; the oracle finds out. `chaos planted`
// has the time for all of them, and to show that sound programs stand the same.
func TestPlantedBugsAreFound(t *testing.T) {
	t.Parallel()
	for _, p := range PlantedBugs() {
		if !p.Quick {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			bin := wrongPrograms(t)
			defer takeTurn()()
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

// What is shipped holds no trace of the faults; the build with the tag does.
func TestShippedProgramsHoldNoFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bin  string
		want bool
	}{{programs(t), false}, {wrongPrograms(t), true}} {
		for _, name := range []string{Sender, Watchdog} {
			program, err := os.ReadFile(filepath.Join(c.bin, name))
			if err != nil {
				t.Fatal(err)
			}
			if have := bytes.Contains(program, []byte("CHAOS_PLANTED")); have != c.want {
				t.Errorf("%s in %s: the name of the setting is there: %v, want %v", name, c.bin, have, c.want)
			}
		}
	}
}
