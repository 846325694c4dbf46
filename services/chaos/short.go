package chaos

import (
	"context"
	"slices"
	"time"
)

// Short is the set that every test run has time for: some points of F1, F2, F4 and
// F17. Between them they kill, stop, restart and cut everything that moves.
func Short() []Scenario {
	crash := Find("F1")[0]
	crash.Name, crash.Fault = "F1.short", "kill -9 at some steps, found on the wire"
	crash.Do = func(ctx context.Context, r *Run) error {
		var some []point
		for _, p := range points() {
			if slices.Contains([]string{"after the commit of the acceptance", "before the acknowledgement", "after the commit of a claim", "after the final dot, before its reply",
				"the reply has come, before the commit of a result", "after the commit of a result", "an event is published, not acknowledged", "after the commit of a letter"}, p.name) {
				some = append(some, p)
			}
		}
		return crashAt(ctx, r, some)
	}
	lost := Find("F4")[0]
	lost.Name, lost.Fault = "F4.short", "the answer to a COMMIT is lost: acceptances, claims, results, letters, two of each"
	lost.Do = func(ctx context.Context, r *Run) error { return r.loseAnswers(ctx, 2, answers()) }
	rolling := Find("F17")[0]
	rolling.Name = "F17.short"
	rolling.Do = func(ctx context.Context, r *Run) error { return r.roll(ctx, 4, time.Second) }
	return append([]Scenario{crash, lost, rolling}, Find("F2")...)
}
