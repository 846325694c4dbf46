//go:build planted

package planted

import (
	"os"
	"strings"
)

// Is tells whether this fault is planted.
func Is(fault string) bool { return os.Getenv("CHAOS_PLANTED") == fault }

// Among gives the list where this fault is planted, else nothing.
func Among[T any](fault string, list []T) []T {
	if !Is(fault) {
		return nil
	}
	return list
}

// SQL gives the statement, where this fault is planted with each old text of the
// pairs replaced by its new one.
func SQL(fault, statement string, pairs ...string) string {
	if !Is(fault) {
		return statement
	}
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(statement, pairs[i]) {
			panic("planted: " + fault + ": the statement does not say " + pairs[i])
		}
	}
	return strings.NewReplacer(pairs...).Replace(statement)
}
