package daemon

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Faults is every fault of a configuration, one line each. A line names the
// variable, what it is (never the value of a secret) and what it should be.
type Faults []string

func (f Faults) Error() string {
	if len(f) == 1 {
		return "configuration: " + f[0]
	}
	return fmt.Sprintf("configuration: %d faults\n  %s", len(f), strings.Join(f, "\n  "))
}

// add keeps one line per fault: the same struct may appear twice in a
// configuration (one process that runs several services).
func (f *Faults) add(format string, args ...any) {
	line := strings.Join(strings.Fields(fmt.Sprintf(format, args...)), " ")
	if !slices.Contains(*f, line) {
		*f = append(*f, line)
	}
}

// shown is a value as a fault line may show it: short, quoted, and not at all
// when it is a secret or a URL that carries one.
func shown(value string, secret bool) string {
	const longest = 64
	if secret {
		return "its value (not shown)"
	}
	if scheme := strings.Index(value, "://"); scheme >= 0 && strings.Contains(value[scheme:], "@") {
		return "its value (not shown: it may hold a password)"
	}
	if utf8.RuneCountInString(value) > longest {
		return fmt.Sprintf("%q...", string([]rune(value)[:longest]))
	}
	return fmt.Sprintf("%q", value)
}

// mentions tells whether a line speaks of a variable (as a whole word).
func mentions(line, name string) bool {
	words := strings.FieldsFunc(line, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
	return slices.Contains(words, name)
}
