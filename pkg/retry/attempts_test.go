package retry_test

import (
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// Seed: "3 attempts, 1m, x2, cap 1h" for forwarding gives 1 and 2 minutes.
func TestAttemptsOfTheSeed(t *testing.T) {
	t.Parallel()
	a := retry.Attempts{Max: 3, Initial: time.Minute, Multiplier: 2, MaxBackoff: time.Hour}
	now := time.Now()
	for failures, want := range []time.Duration{time.Minute, 2 * time.Minute, 0, 0} {
		next := a.Next(failures, delivery.Answer{Category: delivery.Transient}, 0, now)
		if want == 0 != next.IsZero() || want > 0 && next.Sub(now) != want {
			t.Errorf("after %d failures: %s, want %s", failures, next.Sub(now), want)
		}
	}
	a.Max = 50
	if d := a.Next(40, delivery.Answer{}, 0, now).Sub(now); d != time.Hour {
		t.Errorf("the longest wait is %s", d)
	}
	if d := a.Next(0, delivery.Answer{Category: delivery.Quota}, 10*time.Minute, now).Sub(now); d != 10*time.Minute {
		t.Errorf("Retry-After of ten minutes gives %s", d)
	}
	if d := a.Next(0, delivery.Answer{}, 9*time.Hour, now).Sub(now); d != time.Hour {
		t.Errorf("Retry-After of nine hours gives %s", d)
	}
	if a.Initial = 2 * time.Hour; a.Check("X_") == nil {
		t.Error("a wait that shrinks")
	}
}
