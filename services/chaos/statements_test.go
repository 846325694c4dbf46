package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The words by which statements are found on the wire are those of the programs.
func TestStatementsAreWordedSo(t *testing.T) {
	t.Parallel()
	var sql strings.Builder
	for _, room := range []string{"ledger", "queue", "outbox"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "pkg", room, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("room %s has no files (%v)", room, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			sql.Write(text)
		}
	}
	for _, s := range statements() {
		if !strings.Contains(sql.String(), s.words) {
			t.Errorf("no statement of the programs says %q any more: find other words for %s", s.words, s.name)
		}
	}
}
