package settings_test

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/posthouse-io/posthouse/services/settings"
)

// TestReadmeListsTheSettings compares the README's tables with the code.
// UPDATE_README=1 writes them.
func TestReadmeListsTheSettings(t *testing.T) {
	t.Parallel()
	const file = "../../README.md"
	const begin, end = "<!-- settings: printed from the code, checked by a test -->\n", "<!-- end of settings -->"
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(raw), begin)
	have, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no settings section", file)
	}
	var want bytes.Buffer
	if err := settings.Print(&want); err != nil {
		t.Fatal(err)
	}
	if have == want.String() {
		return
	}
	if os.Getenv("UPDATE_README") == "" {
		t.Fatalf("the settings in %s are not those of the code: UPDATE_README=1 go test ./services/settings writes them", file)
	}
	if err := os.WriteFile(file, []byte(head+begin+want.String()+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestNamesAreWhole(t *testing.T) {
	t.Parallel()
	names := strings.Join(settings.Names(), " ")
	for _, name := range []string{"DATABASE_URL", "DATABASE_URL_FILE", "NATS_URL", "MAIL_SERVER_HOST", "RETRY_MAIL_MAX_RETRIES", "MAX_HOLD", "WATCHDOG_SWEEP", "STREAMS_MAX_BYTES"} {
		if !strings.Contains(" "+names+" ", " "+name+" ") {
			t.Errorf("%s is missing", name)
		}
	}
}
