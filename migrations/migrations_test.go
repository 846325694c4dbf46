package migrations

import (
	"fmt"
	"strings"
	"testing"
)

// The versions are 1, 2, 3 and so on without a gap, so that the newest is also
// how many there are, and none runs backwards.
func TestMigrationsAreContiguousAndForwardOnly(t *testing.T) {
	t.Parallel()
	entries, err := files.ReadDir("sql")
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range entries {
		if want := fmt.Sprintf("%05d_", i+1); !strings.HasPrefix(e.Name(), want) {
			t.Errorf("migration %d is %s, want %s...", i+1, e.Name(), want)
		}
		text, err := files.ReadFile("sql/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "+goose Down") {
			t.Errorf("%s has a way back", e.Name())
		}
	}
	if Newest() != int64(len(entries)) {
		t.Errorf("newest is %d of %d migrations", Newest(), len(entries))
	}
}
