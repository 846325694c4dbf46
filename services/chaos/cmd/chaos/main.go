// Command chaos breaks Posthouse on purpose and tells what came of it:
//
//	go run ./services/chaos/cmd/chaos list
//	go run ./services/chaos/cmd/chaos run --scenario F3,F17
//	go run ./services/chaos/cmd/chaos all --report services/chaos/REPORT.md
//	go run ./services/chaos/cmd/chaos short
//	go run ./services/chaos/cmd/chaos nemesis --for 30m --seed 7
//	go run ./services/chaos/cmd/chaos planted
//	go run ./services/chaos/cmd/chaos report results-1.json results-2.json > REPORT.md
//	go run ./services/chaos/cmd/chaos judge /tmp/posthouse-chaos-123/history.json
//
// It ends with 1 when an invariant is broken (planted: when a bug was not found), with 2 when something could not be run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/posthouse-io/posthouse/services/chaos"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if is, err := chaos.Part(context.WithoutCancel(ctx), os.Args[1:], os.Stdin, os.Stdout); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	broken, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(2)
	case broken:
		os.Exit(1)
	}
}

// command is what the flags say.
type command struct {
	scenario, bin, dir, report string
	old                        string
	race, asJSON, keep         bool
	seed                       uint64
	seeds                      int
	length                     time.Duration
	scale                      float64
}

func run(ctx context.Context, args []string, out, progress io.Writer) (broken bool, err error) {
	if len(args) == 0 {
		return false, errors.New("want list, run, short, all, nemesis, planted, report or judge")
	}
	var c command
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.StringVar(&c.scenario, "scenario", "", "names, separated by commas; F3 means all its parts")
	f.StringVar(&c.bin, "bin", "", "folder of built programs; empty: they are built now")
	f.StringVar(&c.dir, "dir", "", "folder for everything; empty: the system's")
	f.StringVar(&c.old, "old", "", "commit whose programs F19 begins with; empty: HEAD~1")
	f.StringVar(&c.report, "report", "", "write the table as Markdown to this file")
	f.BoolVar(&c.race, "race", false, "build the programs with the race detector")
	f.BoolVar(&c.asJSON, "json", false, "one line of JSON per run")
	f.BoolVar(&c.keep, "keep", false, "keep the folder of runs that broke nothing, too")
	f.Uint64Var(&c.seed, "seed", 1, "of everything that is drawn")
	f.IntVar(&c.seeds, "seeds", 1, "runs of each scenario, with seeds one above the other")
	f.DurationVar(&c.length, "for", 30*time.Minute, "how long the nemesis goes on")
	f.Float64Var(&c.scale, "scale", 1, "of bounded loads")
	if err := f.Parse(args[1:]); err != nil {
		return false, err
	}
	var scenarios []chaos.Scenario
	switch args[0] {
	case "list":
		for _, s := range chaos.Scenarios() {
			text := s.Fault
			if s.Missing != "" {
				text += " (not run: " + s.Missing + ")"
			}
			_, _ = fmt.Fprintf(out, "%-14s %s\n", s.Name, text)
		}
		return false, nil
	case "judge":
		return judge(f.Args(), out)
	case "report":
		return false, report(f.Args(), out)
	case "run":
		for name := range strings.SplitSeq(c.scenario, ",") {
			found := chaos.Find(name)
			if len(found) == 0 {
				return false, fmt.Errorf("no scenario %q; `chaos list` names them", name)
			}
			scenarios = append(scenarios, found...)
		}
	case "short":
		scenarios = chaos.Short()
	case "planted":
		return c.planted(ctx, out, progress)
	case "all":
		scenarios = chaos.Scenarios()
	case "nemesis":
		scenarios = []chaos.Scenario{chaos.Nemesis(c.length)}
	default:
		return false, fmt.Errorf("no command %q; want list, run, short, all, nemesis, planted, report or judge", args[0])
	}
	return c.execute(ctx, scenarios, "chaos "+strings.Join(args, " "), out, progress)
}

func teller(progress io.Writer) func(string, ...any) {
	return func(format string, args ...any) {
		_, _ = fmt.Fprintf(progress, "%s "+format+"\n", append([]any{time.Now().UTC().Format("15:04:05")}, args...)...)
	}
}

// programs gives the folder of the programs, and builds them where none is named.
func (c command) programs(ctx context.Context, say func(string, ...any), tags ...string) (bin string, remove func(), err error) {
	if c.bin != "" {
		bin, err = filepath.Abs(c.bin)
		return bin, func() {}, err
	}
	if bin, err = os.MkdirTemp(c.dir, "posthouse-chaos-bin-"); err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(bin) }
	say("building the programs")
	if err = chaos.Build(ctx, bin, "", c.race, tags...); err != nil {
		remove()
	}
	return bin, remove, err
}

// planted runs the planted bugs, each beside the same under sound programs; broken:
// the oracle has not found one, or has found one where none is.
func (c command) planted(ctx context.Context, out, progress io.Writer) (broken bool, err error) {
	say := teller(progress)
	bin, remove, err := c.programs(ctx, say, chaos.PlantedTag)
	if err != nil {
		return false, err
	}
	defer remove()
	for _, p := range chaos.PlantedBugs() {
		if !named(c.scenario, p.Name) {
			continue
		}
		say("%s: %s", p.Name, p.Bug)
		var verdicts [2]string
		for i, s := range []chaos.Scenario{p.Scenario, p.Sound()} {
			if i == 1 && p.Sabotage {
				continue
			}
			r, _, err := chaos.Execute(ctx, s, chaos.Options{Bin: bin, Parent: c.dir, Drop: i == 0 && !c.keep, Seed: c.seed, Say: say})
			if err != nil {
				return broken, err
			}
			found := slices.IndexFunc(r.Violations, func(v chaos.Violation) bool { return v.Invariant == p.Expect })
			switch {
			case i == 0 && found >= 0:
				verdicts[i] = "found, " + r.Violations[found].String()
			case i == 0:
				broken, verdicts[i] = true, fmt.Sprintf("NOT FOUND under %s, only %v", p.Expect, r.Violations)
			case len(r.Violations) > 0:
				broken, verdicts[i] = true, "; without it: "+r.Violations[0].String()
			default:
				verdicts[i] = "; without it: held"
			}
		}
		_, _ = fmt.Fprintf(out, "%s (%s): %s%s\n", p.Name, p.Bug, verdicts[0], verdicts[1])
	}
	return broken, nil
}

func named(list, name string) bool {
	return list == "" || slices.ContainsFunc(strings.Split(list, ","), func(n string) bool { return "planted."+n == name || n == name })
}

func (c command) execute(ctx context.Context, scenarios []chaos.Scenario, line string, out, progress io.Writer) (broken bool, err error) {
	say := teller(progress)
	bin, remove, err := c.programs(ctx, say)
	if err != nil {
		return false, err
	}
	defer remove()
	origin := fmt.Sprintf("%s, `%s`, commit %s, %s", time.Now().UTC().Format("2 January 2006 15:04 MST"), line, commit(ctx), chaos.Machine())
	var results []*chaos.Result
	var errs []error
	for _, s := range scenarios {
		for n := range max(1, c.seeds) {
			if ctx.Err() != nil {
				break
			}
			o := chaos.Options{Bin: bin, Parent: c.dir, Old: c.old, Keep: c.keep, Seed: c.seed + uint64(n), Scale: c.scale, Say: say}
			if s.Missing == "" {
				say("%s, seed %d: %s", s.Name, o.Seed, s.Fault)
			}
			r, _, err := chaos.Execute(ctx, s, o)
			r.Origin = origin
			if err != nil {
				r.Error = err.Error()
				errs = append(errs, err)
			}
			results = append(results, r)
			broken = broken || len(r.Violations) > 0
			c.tell(r, out, say)
			if s.Missing != "" {
				break
			}
		}
	}
	if c.report != "" {
		f, err := os.Create(c.report)
		if err != nil {
			return broken, err
		}
		errs = append(errs, chaos.WriteMarkdown(f, results), f.Close())
	}
	return broken, errors.Join(append(errs, context.Cause(ctx))...)
}

// tell says what one run has shown.
func (c command) tell(r *chaos.Result, out io.Writer, say func(string, ...any)) {
	if c.asJSON {
		_ = chaos.WriteJSON(out, r)
	}
	if r.Missing != "" {
		return
	}
	say("%s, seed %d: %s in %s: %d accepted, %d sent, %d ended otherwise, %d letters, %d unknown, %d late, %d duplicates, %d lost, %d events twice, 95%% taken within %s, slowest %s, recovery %s", r.Scenario, r.Seed, r.Verdict(),
		r.Took.Round(100*time.Millisecond), r.Acknowledged, r.Sent, r.Ended, r.Letters, r.Unknown, r.Late, r.Duplicates, r.Lost, r.Repeats, r.Usual.Round(10*time.Millisecond), r.Slowest.Round(10*time.Millisecond), r.Recovery.Round(10*time.Millisecond))
	if r.Error != "" {
		say("%s: could not be run to its end: %s (%s)", r.Scenario, r.Error, r.Dir)
	}
	if len(r.Violations) > 0 && !c.asJSON {
		for i, v := range r.Violations {
			if i == 10 {
				say("... %d in all", len(r.Violations))
				break
			}
			say("%s", v)
		}
		say("the first one's story (%s):\n%s", r.Dir, r.Tale)
	}
}

// commit is that of the tree from which the programs are built: a build in a
// workspace does not know it.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty= with changes").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// report makes one table of the results of several runs.
func report(files []string, out io.Writer) error {
	var results []*chaos.Result
	for _, file := range files {
		f, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		some, err := chaos.ReadJSON(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("report: %s: %w", file, err)
		}
		results = append(results, some...)
	}
	return chaos.WriteMarkdown(out, results)
}

func judge(files []string, out io.Writer) (broken bool, err error) {
	for _, file := range files {
		h, err := chaos.LoadHistory(file)
		if err != nil {
			return broken, err
		}
		found := chaos.Judge(h)
		for _, v := range found {
			_, _ = fmt.Fprintln(out, v)
		}
		if len(found) > 0 {
			broken = true
			_, _ = fmt.Fprintf(out, "the first one's story:\n%s", chaos.Tale(h, found[0]))
		}
	}
	return broken, nil
}
