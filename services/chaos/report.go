package chaos

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Result is what one run has shown.
type Result struct {
	Scenario     string        `json:"scenario"`
	Fault        string        `json:"fault"`
	Note         string        `json:"note,omitempty"`
	Missing      string        `json:"missing,omitempty"`
	Error        string        `json:"error,omitempty"`  // it could not be run to its end
	Origin       string        `json:"origin,omitempty"` // when, where, by which command, from which commit
	Seed         uint64        `json:"seed"`
	Published    int           `json:"published"`    // distinct requests
	Acknowledged int           `json:"acknowledged"` // of them
	Tries        int           `json:"tries"`        // of publishing
	Deliveries   int           `json:"deliveries"`
	Sent         int           `json:"sent"`
	Ended        int           `json:"ended"` // failed, dead, expired
	Letters      int           `json:"letters"`
	Unknown      int           `json:"unknown"`    // attempts
	Late         int           `json:"late"`       // results kept as evidence
	Duplicates   int           `json:"duplicates"` // mails beyond the first of each recipient
	Lost         int           `json:"lost"`       // acknowledged and not in the book, or sent and never arrived
	Repeats      int           `json:"repeats"`    // events that the stream holds more than once
	Usual        time.Duration `json:"usual"`      // 95 of 100 mails were taken so soon after the acknowledgement
	Slowest      time.Duration `json:"slowest"`    // the last of them
	Faults       []string      `json:"faults"`
	Recovery     time.Duration `json:"recovery"` // from the last repair to rest
	Took         time.Duration `json:"took"`
	Violations   []Violation   `json:"violations,omitempty"`
	Tale         string        `json:"tale,omitempty"` // of the first
	Dir          string        `json:"dir,omitempty"`  // with logs and history.json
}

func (r *Result) figures(h *History, s *Site, recovery, took time.Duration) {
	r.Recovery, r.Took, r.Faults = recovery.Round(time.Millisecond), took.Round(time.Millisecond), s.Faults()
	r.count(h)
}

func (r *Result) count(h *History) {
	j := newJudge(h)
	for _, p := range h.Published {
		r.Published++
		r.Tries += p.Tries
		if !p.Acked.IsZero() {
			r.Acknowledged++
			if _, known := j.keys[key{p.Tenant, p.RequestID}]; !known && !p.Poison {
				r.Lost++
			}
		}
	}
	r.Deliveries, r.Letters = len(h.Book.Deliveries), len(h.Book.Letters)
	for _, f := range j.files {
		switch {
		case f.State == delivery.Sent:
			r.Sent++
			if len(f.taken) == 0 {
				r.Lost++
			}
		case f.State.Final():
			r.Ended++
		}
		r.Unknown += len(f.unknown())
		for _, n := range f.arrivals() {
			r.Duplicates += n - 1
		}
		seen := map[string]bool{}
		for _, t := range f.told {
			if seen[t.ID] {
				r.Repeats++
			}
			seen[t.ID] = true
		}
	}
	r.Usual, r.Slowest = j.dwell("", 0.95).Round(time.Millisecond), j.dwell("", 1).Round(time.Millisecond)
	for _, a := range h.Book.Attempts {
		if a.Verdict == "late" {
			r.Late++
		}
	}
}

// Verdict is one word for a table.
func (r *Result) Verdict() string {
	switch {
	case r.Missing != "":
		return "not run"
	case r.Error != "":
		return "ERROR"
	case len(r.Violations) > 0:
		return fmt.Sprintf("BROKEN (%d)", len(r.Violations))
	}
	return "held"
}

// WriteJSON writes one result per line.
func WriteJSON(w io.Writer, results ...*Result) error {
	e := json.NewEncoder(w)
	for _, r := range results {
		if err := e.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// ReadJSON reads what WriteJSON wrote.
func ReadJSON(r io.Reader) (results []*Result, err error) {
	for d := json.NewDecoder(r); ; {
		one := &Result{}
		if err := d.Decode(one); errors.Is(err, io.EOF) {
			return results, nil
		} else if err != nil {
			return results, fmt.Errorf("read results: %w", err)
		}
		results = append(results, one)
	}
}

// Machine is this one in a few words.
func Machine() string {
	text := fmt.Sprintf("%s/%s, %d processors", runtime.GOOS, runtime.GOARCH, runtime.NumCPU())
	if load, err := os.ReadFile("/proc/loadavg"); err == nil { // what else runs there
		one, _, _ := strings.Cut(string(load), " ")
		text += ", load " + one + " before the run"
	}
	return text
}

// WriteMarkdown writes the table of a report: what ran, what was done to it and
// what came of it.
func WriteMarkdown(w io.Writer, results []*Result) error {
	var b strings.Builder
	b.WriteString("# What the faults did\n\nMail is the channel. Duplicates are mails beyond a recipient's first, each beside an\nattempt that is recorded as unknown; lost is what was acknowledged and is not there. Recovery is the time from the last repair\nuntil nothing was left to do.\n\n")
	told := map[string]bool{}
	for _, r := range results {
		if !told[r.Origin] && r.Origin != "" {
			told[r.Origin] = true
			b.WriteString("- " + r.Origin + "\n")
		}
	}
	b.WriteString("\n| | fault | seed | faults | accepted | sent | ended otherwise | letters | unknown | late | duplicates | lost | events twice | 95 % taken within | slowest | recovery | invariants |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		if r.Missing != "" || r.Error != "" {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %s | %s | %s | %s |\n", r.Scenario, cell(r.Fault), r.Seed, len(r.Faults), r.Acknowledged, r.Sent, r.Ended,
			r.Letters, r.Unknown, r.Late, r.Duplicates, r.Lost, r.Repeats, r.Usual.Round(10*time.Millisecond), r.Slowest.Round(10*time.Millisecond), r.Recovery.Round(100*time.Millisecond), r.Verdict())
	}
	section := func(title string, text func(*Result) string) {
		if !slices.ContainsFunc(results, func(r *Result) bool { return text(r) != "" }) {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		said := map[string]bool{}
		for _, r := range results {
			if line := text(r); line != "" && !said[r.Scenario+line] {
				said[r.Scenario+line] = true
				fmt.Fprintf(&b, "- %s: %s\n", r.Scenario, line)
			}
		}
	}
	section("Notes", func(r *Result) string { return r.Note })
	section("Not run", func(r *Result) string { return r.Missing })
	section("Could not be run to the end", func(r *Result) string { return cell(r.Error) })
	section("Broken", func(r *Result) string {
		if len(r.Violations) == 0 {
			return ""
		}
		return r.Violations[0].String()
	})
	_, err := io.WriteString(w, b.String())
	return err
}

func cell(s string) string { return strings.NewReplacer("|", "/", "\n", " ").Replace(s) }
