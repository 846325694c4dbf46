package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// oldestMajor is the oldest PostgreSQL that the schema is tested on.
const oldestMajor = 15

// ErrNoPrograms says that no usable PostgreSQL is installed.
var ErrNoPrograms = errors.New("no PostgreSQL server programs found")

const installHint = "install them (apt-get install postgresql, dnf install postgresql-server, " +
	"brew install postgresql@17), or set DATABASE_URL to a server that runs already"

// usualPlaces are where packages put the server's programs without adding them
// to PATH: Debian, Red Hat, Homebrew on both processors, a build from source.
var usualPlaces = []string{
	"/usr/lib/postgresql/*/bin",
	"/usr/pgsql-*/bin",
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
	"/usr/lib/postgresql*/bin",
	"/usr/local/pgsql/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// programs is one installation of the server.
type programs struct {
	bin   string // folder
	major int
}

// findPrograms looks in the folders of PATH and then in the usual places, or
// only in places (globs) when there are any. It takes the first that has the
// version want; with want 0, the first of PATH that is new enough, else the
// newest.
func findPrograms(ctx context.Context, places []string, want int) (programs, error) {
	var found []programs
	if len(places) == 0 {
		found = installed(ctx, filepath.SplitList(os.Getenv("PATH")))
		places = usualPlaces
	}
	var rest []string
	for _, place := range places {
		matches, err := filepath.Glob(place)
		if err != nil {
			return programs{}, fmt.Errorf("look for PostgreSQL in %q: %w", place, err)
		}
		rest = append(rest, matches...)
	}
	others := installed(ctx, rest)
	slices.SortStableFunc(others, func(a, b programs) int { return b.major - a.major })
	found = append(found, others...)

	var versions []string
	for _, p := range found {
		if p.major == want || want == 0 && p.major >= oldestMajor {
			return p, nil
		}
		versions = append(versions, fmt.Sprintf("%d in %s", p.major, p.bin))
	}
	need := fmt.Sprintf("version %d or newer", oldestMajor)
	if want != 0 {
		need = fmt.Sprintf("version %d, which made this cluster", want)
	}
	if len(versions) > 0 {
		need += "; found only " + strings.Join(slices.Compact(versions), ", ")
	}
	return programs{}, fmt.Errorf("%w (%s): %s", ErrNoPrograms, need, installHint)
}

func installed(ctx context.Context, dirs []string) []programs {
	var found []programs
	for _, dir := range dirs {
		if !filepath.IsAbs(dir) { // PATH may hold "." or nothing: never run what lies about
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
			continue
		}
		out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
		if err != nil {
			continue
		}
		if major, ok := parseVersion(string(out)); ok {
			found = append(found, programs{bin: dir, major: major})
		}
	}
	return found
}

var versionText = regexp.MustCompile(`^postgres \(PostgreSQL\) (\d{1,4})`)

// parseVersion reads the major version from what `postgres --version` prints.
func parseVersion(out string) (int, bool) {
	m := versionText.FindStringSubmatch(out)
	if m == nil {
		return 0, false
	}
	major, err := strconv.Atoi(m[1])
	return major, err == nil
}

func (p programs) path(name string) string { return filepath.Join(p.bin, name) }
