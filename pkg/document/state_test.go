package document_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/document"
)

// The table in the package comment is the table of the code.
func TestTheDrawnTableIsTheTable(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^//\t(\(new\)|[a-z]+) +-> ([a-z]+) {2,}([a-z0-9 ]+?) {2,}([a-z-]+)$`)
	var drawn []document.Move
	for _, m := range row.FindAllStringSubmatch(string(src), -1) {
		from := m[1]
		if from == "(new)" {
			from = ""
		}
		drawn = append(drawn, document.Move{From: document.State(from), To: document.State(m[2]), Cause: document.Cause(m[3]), By: document.Who(m[4])})
	}
	if !slices.Equal(drawn, document.Moves()) {
		t.Errorf("doc.go draws\n%s\nthe code has\n%s", list(drawn), list(document.Moves()))
	}
	for _, n := range document.Notes() {
		if !strings.Contains(string(src), string(n.Cause)+" (") {
			t.Errorf("doc.go does not tell of the note %q", n.Cause)
		}
	}
}

func list(moves []document.Move) string {
	var b strings.Builder
	for _, m := range moves {
		fmt.Fprintf(&b, "%s -> %s  %s  %s\n", m.From, m.To, m.Cause, m.By)
	}
	return b.String()
}

func TestTheTableOfMoves(t *testing.T) {
	t.Parallel()
	seen := map[document.Move]bool{}
	reached, left := map[document.State]bool{}, map[document.State]bool{}
	for _, m := range document.Moves() {
		if seen[m] {
			t.Errorf("%+v is listed twice", m)
		}
		seen[m] = true
		reached[m.To], left[m.From] = true, true
		if !document.Legal(m.From, m.To, m.Cause) {
			t.Errorf("%+v is not legal", m)
		}
		// Only a person revives what has ended; a rejected document may be shown to the backend.
		if m.From.Final() && m.By != document.Operator && m.From != document.Rejected {
			t.Errorf("%+v leaves a final state", m)
		}
	}
	for _, s := range document.States() {
		if !reached[s] || !left[s] {
			t.Errorf("%s: reached %v, left %v", s, reached[s], left[s])
		}
		if got, err := document.ParseState(string(s)); err != nil || got != s {
			t.Errorf("%s: %s %v", s, got, err)
		}
	}
	for _, s := range []string{"", "forwarding", "Received", "sent"} {
		if _, err := document.ParseState(s); err == nil {
			t.Errorf("%q is a state", s)
		}
	}
	if document.Legal(document.Forwarded, document.Dead, document.CauseAttempt) {
		t.Error("a forwarded document dies")
	}
}
