package bench

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// Options say what to measure and where.
type Options struct {
	Plan        Plan
	Quick       bool     // the plan is the quick one; for the report
	BesideRiver bool     // measure River too, in turn with ours
	RiverDir    string   // its module; empty: looked for from the present folder upwards
	Dir         string   // where the folder of the run is made; empty: the system's place for temporary files
	Program     []string // this program, for the parts that run as processes of their own; empty: the present executable
	Volatile    bool     // PostgreSQL does not wait for the disk: for tests of the bench itself
	Progress    io.Writer
}

// Run measures everything and removes what it made. After an error the log stays,
// and the error says where.
func Run(ctx context.Context, o Options) (r *Report, err error) {
	b := &bench{o: o, began: time.Now(), samples: make(map[string][]float64),
		report: Report{Version: 1, Quick: o.Quick, Rounds: o.Plan.Rounds, StartedAt: time.Now().UTC().Truncate(time.Second)}}
	b.tell("starting PostgreSQL")
	if b.servers, err = startServers(ctx, o); err != nil {
		return nil, err
	}
	defer func() {
		if e := b.servers.stop(ctx, err != nil && ctx.Err() == nil); err == nil {
			err = e
		} else if ctx.Err() == nil {
			err = fmt.Errorf("%w\nthe log is kept in %s", err, b.servers.log.Name())
		}
	}()
	if err := b.measure(ctx); err != nil {
		return nil, err
	}
	return &b.report, b.finish(ctx)
}

type bench struct {
	o       Options
	servers *servers
	river   string // program; empty: not asked for
	report  Report
	samples map[string][]float64
	began   time.Time
}

func (b *bench) tell(what string) {
	if b.o.Progress != nil {
		fmt.Fprintf(b.o.Progress, "bench %5.0fs  %s\n", time.Since(b.began).Seconds(), what)
	}
}

// stepBound is far above what any measurement takes: one that hangs is an error.
const stepBound = 20 * time.Minute

// step measures one figure once and keeps the sample.
func (b *bench) step(ctx context.Context, name string, measure func(context.Context) (float64, error)) error {
	b.tell(name + " ...")
	ctx, cancel := context.WithTimeoutCause(ctx, stepBound, fmt.Errorf("it took more than %s", stepBound))
	defer cancel()
	v, err := measure(ctx)
	if err != nil {
		return fmt.Errorf("measure %s: %w", name, err)
	}
	b.keep(name, v)
	b.tell(name + " " + show(figure(v)))
	return nil
}

func (b *bench) keep(name string, v float64) { b.samples[name] = append(b.samples[name], v) }

// measure takes all samples: ours and River's in turn, so that a change of the
// machine's mood meets both.
func (b *bench) measure(ctx context.Context) (err error) {
	if b.o.BesideRiver {
		b.tell("building River's program")
		if b.river, err = b.servers.buildRiver(ctx, b.o.RiverDir); err != nil {
			return err
		}
	}
	for round := range b.o.Plan.Rounds {
		b.tell(fmt.Sprintf("round %d of %d", round+1, b.o.Plan.Rounds))
		if err := b.rates(ctx); err != nil {
			return err
		}
		if err := b.latencies(ctx); err != nil {
			return err
		}
		if err := b.snapshots(ctx); err != nil {
			return err
		}
		if err := b.fairness(ctx); err != nil {
			return err
		}
		if err := b.takeover(ctx); err != nil {
			return err
		}
	}
	return b.once(ctx)
}

// rates are the burn-downs, River, the whole way and intake.
func (b *bench) rates(ctx context.Context) error {
	p := b.o.Plan
	river := func(shape string, jobs int) error {
		if b.river == "" {
			return nil
		}
		name := "river_" + shape
		return b.step(ctx, name+"_per_s", func(ctx context.Context) (float64, error) {
			r, err := b.servers.river(ctx, b.river, shape, jobs)
			if shape == "1k" && err == nil {
				b.keep("river_insert_1k_per_s", r.inserted)
			}
			if r.cpu != nil {
				b.keep("cpu_us_per_job."+name, *r.cpu)
			}
			return r.perSecond, err
		})
	}
	for _, do := range []func() error{
		func() error {
			return b.step(ctx, "burndown_per_s", func(ctx context.Context) (float64, error) {
				burn, err := b.servers.burndown(ctx, p.Rows, false)
				b.account("", burn)
				b.keep("foreign_cores", burn.foreign)
				return burn.perSecond, err
			})
		},
		func() error { return river("1k", p.RiverJobs) },
		func() error {
			return b.step(ctx, "burndown_default_sync_per_s", func(ctx context.Context) (float64, error) {
				burn, err := b.servers.burndown(ctx, p.Rows, true)
				return burn.perSecond, err
			})
		},
		func() error { return river("bench", p.RiverJobs) },
		func() error {
			return b.step(ctx, "e2e_per_s", func(ctx context.Context) (float64, error) {
				burn, err := b.servers.endToEnd(ctx, p.Requests)
				b.account("e2e_", burn)
				return burn.perSecond, err
			})
		},
		func() error { return river("tx", p.RiverTxJobs) },
		func() error {
			return b.step(ctx, "intake_per_s", func(ctx context.Context) (float64, error) { return b.servers.intake(ctx, p.Requests) })
		},
		func() error {
			return b.step(ctx, "limit_insert_1k_per_s", func(ctx context.Context) (float64, error) { return b.servers.insertLimit(ctx, p.LimitRows) })
		},
	} {
		if err := do(); err != nil {
			return err
		}
	}
	return nil
}

// account keeps what a burn-down cost.
func (b *bench) account(prefix string, burn burn) {
	for name, v := range map[string]*float64{"statements_per_delivery": burn.statements, "wal_bytes_per_delivery": &burn.wal,
		"cpu_us_per_delivery.go": burn.cpu.Go, "cpu_us_per_delivery.pg": burn.cpu.PG, "cpu_us_per_delivery.nats": burn.cpu.NATS, "cpu_us_per_delivery.sum": burn.cpu.Sum} {
		if v != nil {
			b.keep(prefix+name, *v)
		}
	}
}

func (b *bench) latencies(ctx context.Context) error {
	for _, r := range b.o.Plan.Rates {
		rate := strconv.Itoa(r.PerSecond)
		err := b.step(ctx, "latency_ms.send_p99."+rate, func(ctx context.Context) (float64, error) {
			d, err := b.servers.latency(ctx, r)
			b.keep("latency_ms.send_p50."+rate, d.sendP50)
			b.keep("latency_ms.event_p50."+rate, d.eventP50)
			b.keep("latency_ms.event_p99."+rate, d.eventP99)
			return d.sendP99, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// snapshots runs a burn-down twice, without and with a session that holds an old
// snapshot, long enough to see what that does.
func (b *bench) snapshots(ctx context.Context) error {
	p := b.o.Plan
	if p.SnapshotRows == 0 { // once, so that the rounds share their rows
		p.SnapshotRows = int(1.3 * median(b.samples["burndown_per_s"]) * p.Snapshot.Seconds())
		b.o.Plan = p
	}
	return b.step(ctx, "open_snapshot_ratio", func(ctx context.Context) (float64, error) {
		without, err := b.servers.snapshotRate(ctx, p, false)
		if err != nil {
			return 0, err
		}
		with, err := b.servers.snapshotRate(ctx, p, true)
		return with / without, err
	})
}

func (b *bench) fairness(ctx context.Context) error {
	return b.step(ctx, "fairness_p95_ratio", func(ctx context.Context) (float64, error) {
		alone, err := b.servers.fairness(ctx, b.o.Plan, 0)
		if err != nil {
			return 0, err
		}
		beside, err := b.servers.fairness(ctx, b.o.Plan, b.o.Plan.Backlog)
		b.keep("fairness_p95_ms.alone", alone)
		b.keep("fairness_p95_ms.beside_backlog", beside)
		return beside / alone, err
	})
}

func (b *bench) takeover(ctx context.Context) error {
	return b.step(ctx, "takeover_s", func(ctx context.Context) (float64, error) {
		took, err := b.servers.takeover(ctx, b.o.Plan.TakeoverRows, b.o.Plan.Lease)
		return took.Seconds(), err
	})
}

// once takes the figures that do not vary from run to run.
func (b *bench) once(ctx context.Context) error {
	p := b.o.Plan
	b.tell("idle_statements_per_s ...")
	rate, counted, err := b.servers.idle(ctx, p.IdleSettle, p.IdleFor)
	if err != nil {
		return fmt.Errorf("measure idle_statements_per_s: %w", err)
	}
	if counted {
		b.keep("idle_statements_per_s", rate)
	}
	err = b.step(ctx, "claim_buffers.empty", func(ctx context.Context) (float64, error) {
		return b.servers.claimBuffers(ctx, p.ClaimRows, 0, 0, b.tell)
	})
	if err != nil {
		return err
	}
	return b.step(ctx, "claim_buffers.loaded", func(ctx context.Context) (float64, error) {
		return b.servers.claimBuffers(ctx, p.ClaimRows, p.FinishedRows, p.WaitingRows, b.tell)
	})
}

// finish turns the samples into the report.
func (b *bench) finish(ctx context.Context) error {
	r, p := &b.report, b.o.Plan
	version, err := b.servers.version(ctx)
	if err != nil {
		return fmt.Errorf("ask for the version: %w", err)
	}
	r.Machine = Machine{CPUs: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(), PostgreSQL: version, Slots: slots,
		ForeignCores: b.figure("foreign_cores")}
	r.BurndownPerS, r.BurndownDefaultSyncPerS, r.E2EPerS = b.figure("burndown_per_s"), b.figure("burndown_default_sync_per_s"), b.figure("e2e_per_s")
	r.IntakePerS, r.LimitInsert1KPerS = b.figure("intake_per_s"), b.figure("limit_insert_1k_per_s")
	r.River1KPerS, r.RiverBenchPerS, r.RiverTxPerS = b.figure("river_1k_per_s"), b.figure("river_bench_per_s"), b.figure("river_tx_per_s")
	r.RiverInsert1KPerS = b.figure("river_insert_1k_per_s")
	r.RiverCPUUsPerJob = map[string]*float64{"1k": b.figure("cpu_us_per_job.river_1k"), "bench": b.figure("cpu_us_per_job.river_bench"), "tx": b.figure("cpu_us_per_job.river_tx")}
	r.LatencyMS = LatencyMS{b.byRate("send_p50"), b.byRate("send_p99"), b.byRate("event_p50"), b.byRate("event_p99")}
	r.StatementsPerDelivery, r.WALBytesPerDelivery = b.figure("statements_per_delivery"), b.figure("wal_bytes_per_delivery")
	r.CPUUsPerDelivery, r.E2ECPUUsPerDelivery = b.cpu(""), b.cpu("e2e_")
	r.ClaimBuffers = ClaimBuffers{Rows: p.ClaimRows, Empty: b.figure("claim_buffers.empty"), Loaded: b.figure("claim_buffers.loaded"), FinishedRows: p.FinishedRows, WaitingRows: p.WaitingRows}
	r.OpenSnapshotRatio, r.IdleStatementsPerS = b.figure("open_snapshot_ratio"), b.figure("idle_statements_per_s")
	r.TakeoverS, r.FairnessP95Ratio = b.figure("takeover_s"), b.figure("fairness_p95_ratio")
	lease, err := shippedLease(p.Lease)
	if err != nil {
		return err
	}
	r.mark(lease)
	r.Samples, r.TookS = make(map[string][]float64, len(b.samples)), *figure(time.Since(b.began).Seconds())
	for name, list := range b.samples {
		for _, v := range list {
			r.Samples[name] = append(r.Samples[name], *figure(v))
		}
	}
	return nil
}

// shippedLease is the lease of the plan, or else the shipped one.
func shippedLease(lease time.Duration) (time.Duration, error) {
	cfg, err := senderConfig("postgres://localhost/posthouse", "nats://localhost", lease)
	return cfg.Lease, err
}

func (b *bench) figure(name string) *float64 {
	if len(b.samples[name]) == 0 {
		return nil
	}
	return figure(median(b.samples[name]))
}

func (b *bench) byRate(name string) map[string]*float64 {
	out := make(map[string]*float64)
	for _, rate := range rates() {
		out[rate] = b.figure("latency_ms." + name + "." + rate)
	}
	return out
}

func (b *bench) cpu(prefix string) CPU {
	get := func(name string) *float64 { return b.figure(prefix + "cpu_us_per_delivery." + name) }
	return CPU{get("go"), get("pg"), get("nats"), get("sum")}
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 && n > 0 {
		return (s[n/2-1] + s[n/2]) / 2
	} else if n > 0 {
		return s[n/2]
	}
	return 0
}
