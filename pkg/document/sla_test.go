package document_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/posthouse-io/posthouse/pkg/document"
)

func TestServiceLevels(t *testing.T) {
	t.Parallel()
	now := noon.Add(24 * time.Hour)
	fact := func(start, took time.Duration) document.SLAFact {
		return document.SLAFact{SBDHInstanceID: "x", Start: noon.Add(start), End: noon.Add(start + took)}
	}
	s := document.MLS1().Measure([]document.SLAFact{
		fact(0, time.Minute), fact(0, 20*time.Minute), fact(0, 20*time.Minute+1), fact(time.Hour, -time.Second),
		{Start: noon}, {Start: now.Add(-20 * time.Minute)}, {Start: now.Add(-20*time.Minute - 1)},
		{Start: now.Add(-time.Hour), End: now.Add(time.Hour)},  // an answer that is yet to come
		fact(-time.Minute, time.Minute), fact(24*time.Hour, 0), // outside the period
	}, noon, now, now)
	if s.Within != 3 || s.Late != 1 || s.Missing != 3 || s.Open != 1 || s.Total != 7 || s.Met || len(s.Entries) != 8 {
		t.Errorf("%+v", s)
	}
	if s := document.MLS2().Measure([]document.SLAFact{fact(0, 25*time.Minute)}, time.Time{}, time.Time{}, now); s.Percent != 100 || !s.Met {
		t.Errorf("%+v", s)
	}
	if s := document.MLS1().Measure(nil, noon, now, now); s.Percent != 100 || !s.Met || s.Total != 0 {
		t.Errorf("%+v", s)
	}
}

// Exactly 99.5 percent meets the goal, one exchange less does not.
func TestTheTargetIsExact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		within, total int
		met           bool
	}{{199, 200, true}, {198, 199, false}, {398, 400, true}, {397, 400, false}, {1, 1, true}, {0, 1, false}, {995, 1000, true}, {994, 1000, false}} {
		var facts []document.SLAFact
		for i := range c.total {
			f := document.SLAFact{Start: noon, End: noon.Add(time.Second)}
			if i >= c.within {
				f.End = noon.Add(time.Hour)
			}
			facts = append(facts, f)
		}
		if s := document.MLS1().Measure(facts, time.Time{}, time.Time{}, noon.Add(time.Hour)); s.Met != c.met || s.Within != c.within {
			t.Errorf("%d of %d: %+v", c.within, c.total, s.Met)
		}
	}
	if at := document.MLS1().AlertAt(noon, 5*time.Minute); !at.Equal(noon.Add(15 * time.Minute)) {
		t.Error(at)
	}
	if at := document.MLS1().AlertAt(noon, time.Hour); !at.Equal(noon) {
		t.Error(at)
	}
}

// Every exchange of the period is in exactly one number, and a period that is cut
// in two gives the same sums.
func TestEveryExchangeIsCountedOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		minutes := rapid.IntRange(-60, 120)
		facts := rapid.SliceOf(rapid.Custom(func(t *rapid.T) document.SLAFact {
			f := document.SLAFact{Start: noon.Add(time.Duration(minutes.Draw(t, "start")) * time.Minute)}
			if rapid.Bool().Draw(t, "answered") {
				f.End = f.Start.Add(time.Duration(minutes.Draw(t, "took")) * time.Minute)
			}
			return f
		})).Draw(t, "facts")
		now := noon.Add(time.Hour)
		cut := noon.Add(time.Duration(minutes.Draw(t, "cut")) * time.Minute)
		sum := func(s document.SLA) [5]int { return [5]int{s.Within, s.Late, s.Missing, s.Open, len(s.Entries)} }
		g := document.MLS1()
		all, a, b := sum(g.Measure(facts, time.Time{}, time.Time{}, now)), sum(g.Measure(facts, time.Time{}, cut, now)), sum(g.Measure(facts, cut, time.Time{}, now))
		if all[0]+all[1]+all[2]+all[3] != len(facts) || all[4] != len(facts) {
			t.Fatal(fmt.Sprint(all, len(facts)))
		}
		for i := range all {
			if all[i] != a[i]+b[i] {
				t.Fatal(all, a, b)
			}
		}
	})
}
