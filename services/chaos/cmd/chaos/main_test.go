package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/posthouse-io/posthouse/services/chaos"
)

func TestCommands(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if broken, err := run(t.Context(), []string{"list"}, &out, io.Discard); broken || err != nil {
		t.Fatalf("list: %v, %v", broken, err)
	}
	for _, want := range []string{"F1 ", "F2.before ", "F3.outage ", "F20 ", "(not run: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("list does not name %q", want)
		}
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "want list, run"},
		{[]string{"dance"}, "dance"},
		{[]string{"run", "--scenario", "F99"}, "F99"},
		{[]string{"judge", "/nowhere"}, "load history"},
	} {
		if _, err := run(t.Context(), c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}

// A history that is judged again is judged alike.
func TestJudgeTellsWhatIsBroken(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/history.json"
	h := &chaos.History{Rules: chaos.Rules{Quiet: false, Unrest: "two deliveries are left"}}
	if err := h.Save(path); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	broken, err := run(t.Context(), []string{"judge", path}, &out, io.Discard)
	if !broken || err != nil || !strings.Contains(out.String(), "I6: it did not come to rest: two deliveries are left") {
		t.Errorf("%v, %v: %s", broken, err, out.String())
	}
}

// Runs that were made one after another become one table, each with its origin.
func TestReportMakesOneTable(t *testing.T) {
	t.Parallel()
	var files []string
	for _, r := range []*chaos.Result{{Scenario: "F1", Origin: "today, here", Acknowledged: 7}, {Scenario: "F2", Origin: "later, there", Acknowledged: 8}} {
		var line bytes.Buffer
		if err := chaos.WriteJSON(&line, r); err != nil {
			t.Fatal(err)
		}
		files = append(files, filepath.Join(t.TempDir(), r.Scenario+".json"))
		if err := os.WriteFile(files[len(files)-1], line.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if broken, err := run(t.Context(), append([]string{"report"}, files...), &out, io.Discard); broken || err != nil {
		t.Fatalf("%v, %v", broken, err)
	}
	for _, want := range []string{"- today, here\n- later, there\n", "\n| F1 |", "\n| F2 |", "| held |\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if _, err := run(t.Context(), []string{"report", "/nowhere"}, io.Discard, io.Discard); err == nil {
		t.Error("a file that is not there made a report")
	}
}
