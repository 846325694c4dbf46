package bench

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

func TestMedianAndQuantile(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1}, 5}, {[]float64{5, 1, 9}, 5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v is %v, want %v", c.values, got, c.want)
		}
	}
	hundred := make([]float64, 101)
	for i := range hundred {
		hundred[i] = float64(i)
	}
	for q, want := range map[float64]float64{0: 0, 0.5: 50, 0.99: 99, 1: 100} {
		if got := quantile(hundred, q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
}

func TestFigureKeepsFourDigits(t *testing.T) {
	t.Parallel()
	for in, want := range map[float64]string{0: "0", 12345.6: "12350", 0.0123456: "0.01235", 1: "1", 9999.5: "10000"} {
		if got := show(figure(in)); got != want {
			t.Errorf("%v is shown as %s, want %s", in, got, want)
		}
	}
	if got := show(nil); got != "-" {
		t.Errorf("a missing figure is shown as %q", got)
	}
}

func TestMarksJudgeInTheirDirection(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value float64
		most  bool
		holds bool
	}{{2, false, true}, {1.9, false, false}, {2, true, true}, {2.1, true, false}} {
		m := Mark{Value: figure(c.value), Bar: figure(2), AtMax: c.most}.judge()
		if m.Holds == nil || *m.Holds != c.holds {
			t.Errorf("%v against 2 (at most: %v) holds: %v, want %v", c.value, c.most, m.Holds, c.holds)
		}
	}
	if m := (Mark{Bar: figure(2)}).judge(); m.Holds != nil {
		t.Error("a figure that is missing has a verdict")
	}
}

func TestRiverFiguresAreNullWithoutRiver(t *testing.T) {
	t.Parallel()
	r := Report{BurndownPerS: figure(10_000), BurndownDefaultSyncPerS: figure(10_000)}
	r.mark(15 * time.Second)
	if m := r.Ratios["burndown_per_s/river_1k_per_s"]; m.Value != nil || m.Holds != nil {
		t.Errorf("the ratio to River is %v without River", m)
	}
	if m := r.Ratios["burndown_per_s/burndown_default_sync_per_s"]; m.Value == nil || *m.Value != 1 || !*m.Holds {
		t.Errorf("the ratio of equal figures is %v", m)
	}
	if m := r.Bars["takeover_s"]; *m.Bar != 16 {
		t.Errorf("the bar of a takeover under a lease of 15 s is %v, want 16", *m.Bar)
	}
}

func TestProcessTimesAreRead(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		if _, ok := readProcess(os.Getpid()); ok {
			t.Error("times were read where there are none")
		}
		return
	}
	p, ok := readProcess(os.Getpid())
	if !ok || p.parent != os.Getppid() {
		t.Errorf("read %+v, %v of this process, whose parent is %d", p, ok, os.Getppid())
	}
	if readMachine() <= 0 {
		t.Error("the machine has done nothing since its start")
	}
	if _, ok := readProcess(0); ok {
		t.Error("process 0 has times")
	}
}

func TestTracesCountEachRequestOnce(t *testing.T) {
	t.Parallel()
	tr := newTraces(3)
	for _, number := range []string{"2", "2", "3", "-1", "x", ""} {
		tr.mark(tr.sent, number)
	}
	tr.published[2].Store(1)
	if got := between(tr.published, tr.sent, 0); len(got) != 1 || got[0] <= 0 {
		t.Errorf("times are %v, want one above zero", got)
	}
	if got := between(tr.published, tr.sent, 3); len(got) != 0 {
		t.Errorf("times are %v although all are to be skipped", got)
	}
}

func TestLateRateEndsWithTheWork(t *testing.T) {
	t.Parallel()
	w := noop(1)
	w.count.Store(50)
	close(w.full)
	rate, err := w.lateRate(t.Context(), time.Hour, time.Millisecond)
	if err != nil || rate <= 0 {
		t.Errorf("rate %v, error %v", rate, err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := noop(1).lateRate(ended, time.Hour, time.Hour); err == nil || err.Error() != "enough" {
		t.Errorf("error %v, want the cause", err)
	}
}

func TestAServiceThatEndsIsAnError(t *testing.T) {
	t.Parallel()
	err := alongside(t.Context(), func(context.Context) error { return nil }, func(ctx context.Context) error { <-ctx.Done(); return nil })
	if err == nil {
		t.Error("a service that ended by itself went unnoticed")
	}
	err = alongside(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return nil }, func(context.Context) error { return nil })
	if err != nil {
		t.Errorf("a service that was stopped: %v", err)
	}
}
