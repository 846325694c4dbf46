package bench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/services/bench"
)

// TestMain is also the parts of a bench that run as processes of their own.
func TestMain(m *testing.M) {
	ctx := context.Background()
	var err error
	switch os.Args[len(os.Args)-1] {
	case bench.RoleNATS:
		err = bench.ServeNATS(ctx, os.Stdin, os.Stdout)
	case bench.RoleSender:
		err = bench.ServeSender(ctx, os.Stdin, os.Stdout, os.Stderr)
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// tiny is a plan of a few hundred rows: its figures mean nothing.
func tiny() bench.Plan {
	return bench.Plan{Rounds: 1, Rows: 300, Requests: 300, LimitRows: 1_500, RiverJobs: 300, RiverTxJobs: 100,
		Rates:     []bench.Rate{{PerSecond: 200, Rows: 60, Warm: 20}},
		ClaimRows: 20, FinishedRows: 500, WaitingRows: 300,
		Snapshot: time.Minute, SnapshotWindow: time.Minute, SnapshotRows: 300, // to the end of its rows, so that a busy machine has a rate too
		IdleSettle: 200 * time.Millisecond, IdleFor: 600 * time.Millisecond,
		Lease: time.Second, TakeoverRows: 10, Backlog: 100, FairRate: 100, FairRows: 50}
}

// keys are the figures that a report must hold, by their paths in the JSON.
func keys() []string {
	return []string{"burndown_per_s", "burndown_default_sync_per_s", "e2e_per_s", "intake_per_s", "limit_insert_1k_per_s",
		"river_1k_per_s", "river_bench_per_s", "river_tx_per_s", "statements_per_delivery", "wal_bytes_per_delivery",
		"cpu_us_per_delivery.go", "cpu_us_per_delivery.pg", "cpu_us_per_delivery.nats", "claim_buffers.empty", "claim_buffers.loaded",
		"open_snapshot_ratio", "idle_statements_per_s", "takeover_s", "fairness_p95_ratio",
		"latency_ms.send_p50.200", "latency_ms.send_p99.200", "latency_ms.event_p50.200", "latency_ms.event_p99.200"}
}

func TestEveryFigureIsMeasured(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "posthouse-test-bench-") // not t.TempDir, which the PostgreSQL account cannot enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	report, err := bench.Run(t.Context(), bench.Options{Plan: tiny(), Quick: true, BesideRiver: true, Dir: dir, Volatile: true, Progress: &progress})
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	var out bytes.Buffer
	if err := report.JSON(&out); err != nil {
		t.Fatal(err)
	}
	var tree map[string]any
	if err := json.Unmarshal(out.Bytes(), &tree); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys() {
		// CPU time is counted in ticks of 10 ms: so small a run may take less than one.
		mayBeZero := key == "idle_statements_per_s" || strings.Contains(key, "cpu_us")
		if v, ok := find(tree, strings.Split(key, ".")).(float64); !ok || v < 0 || v == 0 && !mayBeZero {
			t.Errorf("%s is %v; want a number above zero", key, find(tree, strings.Split(key, ".")))
		}
	}
	marks := slices.Collect(func(yield func(bench.Mark) bool) {
		for _, list := range []map[string]bench.Mark{report.Ratios, report.Bars} {
			for _, m := range list {
				if !yield(m) {
					return
				}
			}
		}
	})
	missing := slices.DeleteFunc(marks, func(m bench.Mark) bool { return m.Value != nil && (m.Bar == nil || m.Holds != nil) })
	if len(missing) != 2 { // the rates that the plan leaves out
		t.Errorf("%d figures with a bar have no value or no verdict, want 2: %+v", len(missing), missing)
	}
	var table bytes.Buffer
	if err := report.Table(&table); err != nil {
		t.Fatal(err)
	}
	for _, key := range keys() {
		if !strings.Contains(table.String(), key) {
			t.Errorf("the table lacks %s", key)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("the run left %s behind", left[0].Name())
	}
	if !strings.Contains(progress.String(), "round 1 of 1") {
		t.Errorf("the progress does not tell of the rounds:\n%s", progress.String())
	}
}

func find(tree map[string]any, path []string) any {
	if len(path) == 1 {
		return tree[path[0]]
	}
	below, _ := tree[path[0]].(map[string]any)
	return find(below, path[1:])
}

func TestAPartStartedByHandSaysWhatItIs(t *testing.T) {
	t.Parallel()
	for name, serve := range map[string]func() error{
		"NATS": func() error { return bench.ServeNATS(t.Context(), strings.NewReader(""), new(bytes.Buffer)) },
		"sender": func() error {
			return bench.ServeSender(t.Context(), strings.NewReader(""), new(bytes.Buffer), new(bytes.Buffer))
		},
	} {
		if err := serve(); err == nil || !strings.Contains(err.Error(), "posthouse bench") {
			t.Errorf("%s: error %v; want it to name `posthouse bench`", name, err)
		}
	}
}

func TestQuickIsTheSmallerPlan(t *testing.T) {
	t.Parallel()
	quick, full := bench.Quick(), bench.Full()
	if quick.Rounds != 1 || full.Rounds < 3 {
		t.Errorf("rounds are %d and %d; want 1 and at least 3", quick.Rounds, full.Rounds)
	}
	if full.FinishedRows != 10_000_000 || full.WaitingRows != 1_000_000 || full.Backlog != 100_000 {
		t.Errorf("the full plan has a history of %d and %d rows and a backlog of %d", full.FinishedRows, full.WaitingRows, full.Backlog)
	}
	for _, r := range quick.Rates {
		if r.PerSecond == 1 {
			t.Error("the quick plan waits for a rate of one per second")
		}
	}
}
