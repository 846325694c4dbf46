package chaos

import (
	"testing"
	"time"
)

// TestShortSet breaks the real programs in the ways that a test run has time for.
func TestShortSet(t *testing.T) {
	t.Parallel()
	for _, s := range Short() {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			bin := programs(t)
			defer takeTurn()()
			seed := uint64(time.Now().UnixNano())
			r, _, err := Execute(t.Context(), s, Options{Bin: bin, Seed: seed, Say: t.Logf})
			if err != nil {
				t.Fatalf("seed %d: %v (%s)", seed, err, r.Dir)
			}
			t.Logf("seed %d: %s: %d accepted, %d sent, %d letters, %d unknown, %d late, %d duplicates, recovery %s, %s in all", seed, r.Verdict(), r.Acknowledged, r.Sent, r.Letters,
				r.Unknown, r.Late, r.Duplicates, r.Recovery, r.Took)
			for _, v := range r.Violations {
				t.Error(v)
			}
			if len(r.Violations) > 0 {
				t.Logf("the first one's story (%s):\n%s", r.Dir, r.Tale)
			}
		})
	}
}
