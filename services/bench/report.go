package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what one run of the bench found. A figure that was not measured is
// null: those of River without BesideRiver, 1/s in a quick run, and whatever this
// machine cannot tell.
type Report struct {
	Version   int       `json:"version"` // 1
	Quick     bool      `json:"quick"`
	Rounds    int       `json:"rounds"` // rates are medians of so many runs
	StartedAt time.Time `json:"started_at"`
	TookS     float64   `json:"took_s"`
	Machine   Machine   `json:"machine"`

	BurndownPerS            *float64 `json:"burndown_per_s"`
	BurndownDefaultSyncPerS *float64 `json:"burndown_default_sync_per_s"`
	E2EPerS                 *float64 `json:"e2e_per_s"`
	IntakePerS              *float64 `json:"intake_per_s"`
	LimitInsert1KPerS       *float64 `json:"limit_insert_1k_per_s"`
	RiverInsert1KPerS       *float64 `json:"river_insert_1k_per_s"` // by InsertManyFast, 5,000 jobs each
	River1KPerS             *float64 `json:"river_1k_per_s"`
	RiverBenchPerS          *float64 `json:"river_bench_per_s"`
	RiverTxPerS             *float64 `json:"river_tx_per_s"`

	LatencyMS LatencyMS `json:"latency_ms"`

	StatementsPerDelivery *float64 `json:"statements_per_delivery"` // of a burn-down, as are the next two
	WALBytesPerDelivery   *float64 `json:"wal_bytes_per_delivery"`
	CPUUsPerDelivery      CPU      `json:"cpu_us_per_delivery"`
	E2ECPUUsPerDelivery   CPU      `json:"e2e_cpu_us_per_delivery"`

	RiverCPUUsPerJob map[string]*float64 `json:"river_cpu_us_per_job"` // by shape, its process and PostgreSQL together

	ClaimBuffers       ClaimBuffers `json:"claim_buffers"`
	OpenSnapshotRatio  *float64     `json:"open_snapshot_ratio"`
	IdleStatementsPerS *float64     `json:"idle_statements_per_s"`
	TakeoverS          *float64     `json:"takeover_s"`
	FairnessP95Ratio   *float64     `json:"fairness_p95_ratio"`

	Ratios map[string]Mark `json:"ratios"` // of two figures, "a/b"
	Bars   map[string]Mark `json:"bars"`   // of single figures

	Samples map[string][]float64 `json:"samples"` // every run behind a median
}

// Machine says where the run took place.
type Machine struct {
	CPUs         int      `json:"cpus"`
	OS           string   `json:"os"`
	Go           string   `json:"go"`
	PostgreSQL   string   `json:"postgresql"`
	Slots        int      `json:"slots"`         // of the sender
	ForeignCores *float64 `json:"foreign_cores"` // used by others during the burn-downs; the less the better
}

// LatencyMS is milliseconds from the publication of a request, by requests per
// second.
type LatencyMS struct {
	SendP50  map[string]*float64 `json:"send_p50"` // until the first byte at the transport
	SendP99  map[string]*float64 `json:"send_p99"`
	EventP50 map[string]*float64 `json:"event_p50"` // until a subscriber has the event
	EventP99 map[string]*float64 `json:"event_p99"`
}

// CPU is microseconds of CPU time, by process.
type CPU struct {
	Go   *float64 `json:"go"`
	PG   *float64 `json:"pg"`
	NATS *float64 `json:"nats"`
	Sum  *float64 `json:"sum"`
}

// ClaimBuffers is how many buffers a claim reads.
type ClaimBuffers struct {
	Rows         int      `json:"rows"` // that the claim takes
	Empty        *float64 `json:"empty"`
	Loaded       *float64 `json:"loaded"` // with the rows below beside
	FinishedRows int      `json:"finished_rows"`
	WaitingRows  int      `json:"waiting_rows"`
}

// Mark is a figure beside its bar (must hold) and its goal (where we want to be).
type Mark struct {
	Value *float64 `json:"value"`
	Bar   *float64 `json:"bar"`
	Goal  *float64 `json:"goal"`
	AtMax bool     `json:"at_most"` // bar and goal are upper bounds
	Holds *bool    `json:"holds"`   // the bar; null when there is no figure
}

// rates are the loads of the latency figures, in the order of the table.
func rates() []string { return []string{"1", "200", "2000"} }

// mark fills Ratios and Bars.
func (r *Report) mark(lease time.Duration) {
	r.Ratios, r.Bars = make(map[string]Mark), make(map[string]Mark)
	ratio := func(name string, over, under *float64, bar, goal float64) {
		m := Mark{Value: divide(over, under), Bar: figure(bar), Goal: figure(goal)}
		r.Ratios[name] = m.judge()
	}
	ratio("burndown_per_s/river_1k_per_s", r.BurndownPerS, r.River1KPerS, 1, 1.7)
	ratio("burndown_per_s/river_bench_per_s", r.BurndownPerS, r.RiverBenchPerS, 0.6, 1)
	ratio("burndown_per_s/river_tx_per_s", r.BurndownPerS, r.RiverTxPerS, 10, 20)
	ratio("e2e_per_s/river_1k_per_s", r.E2EPerS, r.River1KPerS, 0.6, 1.1)
	ratio("burndown_per_s/burndown_default_sync_per_s", r.BurndownPerS, r.BurndownDefaultSyncPerS, 0.85, 0.95)
	ratio("intake_per_s/limit_insert_1k_per_s", r.IntakePerS, r.LimitInsert1KPerS, 0.4, 0.6)
	ratio("intake_per_s/river_insert_1k_per_s", r.IntakePerS, r.RiverInsert1KPerS, 0.4, 0.6)
	r.Ratios["claim_buffers.loaded/claim_buffers.empty"] = Mark{Value: divide(r.ClaimBuffers.Loaded, r.ClaimBuffers.Empty), Bar: figure(2), Goal: figure(1.2), AtMax: true}.judge()

	most := func(name string, value *float64, bar, goal float64) {
		r.Bars[name] = Mark{Value: value, Bar: figure(bar), Goal: figure(goal), AtMax: true}.judge()
	}
	for i, bar := range []float64{20, 15, 60} {
		most("latency_ms.send_p99."+rates()[i], r.LatencyMS.SendP99[rates()[i]], bar, []float64{5, 5, 15}[i])
	}
	most("statements_per_delivery", r.StatementsPerDelivery, 0.1, 0.02)
	r.Bars["cpu_us_per_delivery.sum"] = Mark{Value: r.CPUUsPerDelivery.Sum, Goal: figure(83), AtMax: true}
	r.Bars["open_snapshot_ratio"] = Mark{Value: r.OpenSnapshotRatio, Bar: figure(0.8), Goal: figure(0.95)}.judge()
	most("idle_statements_per_s", r.IdleStatementsPerS, 2, 0.5)
	most("takeover_s", r.TakeoverS, lease.Seconds()+1, lease.Seconds())
	most("fairness_p95_ratio", r.FairnessP95Ratio, 2, 1)
}

func (m Mark) judge() Mark {
	if m.Value != nil && m.Bar != nil {
		holds := *m.Value >= *m.Bar
		if m.AtMax {
			holds = *m.Value <= *m.Bar
		}
		m.Holds = &holds
	}
	return m
}

// JSON writes the report for machines.
func (r *Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Table writes the report for people.
func (r *Report) Table(w io.Writer) error {
	kind := "full"
	if r.Quick {
		kind = "quick"
	}
	foreign := ""
	if f := r.Machine.ForeignCores; f != nil {
		foreign = fmt.Sprintf(", others used %s cores meanwhile", show(f))
	}
	fmt.Fprintf(w, "Posthouse bench (%s, median of %d, %s, %.0f s)\n%d CPUs, %s, PostgreSQL %s, %s%s\n\n", kind, r.Rounds,
		r.StartedAt.Format("2006-01-02"), r.TookS, r.Machine.CPUs, r.Machine.OS, r.Machine.PostgreSQL, r.Machine.Go, foreign)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "figure\tvalue\tbar\tgoal\t")
	for _, l := range r.lines() {
		bar, goal, verdict := "", "", ""
		if m := l.mark; m != nil {
			sign := "≥ "
			if m.AtMax {
				sign = "≤ "
			}
			if bar = "stated"; m.Bar != nil {
				bar = sign + show(m.Bar)
			}
			goal = sign + show(m.Goal)
			if m.Holds != nil && !*m.Holds {
				verdict = "MISSED"
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", l.name, show(l.value), bar, goal, verdict)
	}
	return t.Flush()
}

// line is one row of the table.
type line struct {
	name  string
	value *float64
	mark  *Mark
}

func (r *Report) lines() []line {
	var all []line
	add := func(name string, value *float64) {
		l := line{name: name, value: value}
		if m, ok := r.Bars[name]; ok {
			l.mark = &m
		}
		all = append(all, l)
	}
	ratio := func(name string) {
		m := r.Ratios[name]
		all = append(all, line{"  " + strings.Replace(name, "/", " / ", 1), m.Value, &m})
	}
	add("burndown_per_s", r.BurndownPerS)
	add("river_1k_per_s", r.River1KPerS)
	ratio("burndown_per_s/river_1k_per_s")
	add("river_bench_per_s", r.RiverBenchPerS)
	ratio("burndown_per_s/river_bench_per_s")
	add("river_tx_per_s", r.RiverTxPerS)
	ratio("burndown_per_s/river_tx_per_s")
	add("burndown_default_sync_per_s", r.BurndownDefaultSyncPerS)
	ratio("burndown_per_s/burndown_default_sync_per_s")
	add("e2e_per_s", r.E2EPerS)
	ratio("e2e_per_s/river_1k_per_s")
	add("intake_per_s", r.IntakePerS)
	add("limit_insert_1k_per_s", r.LimitInsert1KPerS)
	ratio("intake_per_s/limit_insert_1k_per_s")
	add("river_insert_1k_per_s", r.RiverInsert1KPerS)
	ratio("intake_per_s/river_insert_1k_per_s")
	for _, rate := range rates() {
		add("latency_ms.send_p50."+rate, r.LatencyMS.SendP50[rate])
		add("latency_ms.send_p99."+rate, r.LatencyMS.SendP99[rate])
		add("latency_ms.event_p50."+rate, r.LatencyMS.EventP50[rate])
		add("latency_ms.event_p99."+rate, r.LatencyMS.EventP99[rate])
	}
	add("statements_per_delivery", r.StatementsPerDelivery)
	add("wal_bytes_per_delivery", r.WALBytesPerDelivery)
	for _, c := range []struct {
		name string
		cpu  CPU
	}{{"cpu_us_per_delivery", r.CPUUsPerDelivery}, {"e2e_cpu_us_per_delivery", r.E2ECPUUsPerDelivery}} {
		add(c.name+".go", c.cpu.Go)
		add(c.name+".pg", c.cpu.PG)
		add(c.name+".nats", c.cpu.NATS)
		add(c.name+".sum", c.cpu.Sum)
	}
	for _, shape := range []string{"1k", "bench", "tx"} {
		add("river_cpu_us_per_job."+shape, r.RiverCPUUsPerJob[shape])
	}
	add("claim_buffers.empty", r.ClaimBuffers.Empty)
	add("claim_buffers.loaded", r.ClaimBuffers.Loaded)
	ratio("claim_buffers.loaded/claim_buffers.empty")
	add("open_snapshot_ratio", r.OpenSnapshotRatio)
	add("idle_statements_per_s", r.IdleStatementsPerS)
	add("takeover_s", r.TakeoverS)
	add("fairness_p95_ratio", r.FairnessP95Ratio)
	return all
}

// figure is a value, kept to four digits that mean something.
func figure(v float64) *float64 {
	if v == 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return &v
	}
	scale := math.Pow(10, 3-math.Floor(math.Log10(math.Abs(v))))
	v = math.Round(v*scale) / scale
	return &v
}

func divide(over, under *float64) *float64 {
	if over == nil || under == nil || *under == 0 {
		return nil
	}
	return figure(*over / *under)
}

func show(v *float64) string {
	if v == nil {
		return "-"
	}
	return strconv.FormatFloat(*v, 'f', -1, 64)
}
