package daemon

import (
	"regexp"
	"slices"
	"strings"
)

// ownPrefix marks variables that can only be meant for us.
const ownPrefix = "POSTHOUSE_"

// misspelt reports each variable that nobody knows but that looks like a
// setting: a misspelt name would otherwise leave the default in force, unnoticed.
func misspelt(environ map[string]string, own, known []string) Faults {
	all := slices.Concat(own, known)
	var faults Faults
	for _, name := range sortedNames(environ) {
		if slices.Contains(all, name) || foreign(name, environ[name]) {
			continue
		}
		if near := nearest(name, all); near != "" {
			faults.add("%s is not a setting; did you mean %s?", name, near)
		} else if strings.HasPrefix(name, ownPrefix) {
			faults.add("%s is not a setting; remove it or correct its name", name)
		}
	}
	return faults
}

// serviceLink is what Kubernetes sets for each service of the namespace; a
// service named posthouse-gateway must not stop the others from starting.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?$`)

// foreign tells of a name that the system sets.
func foreign(name, value string) bool {
	switch name {
	case "HOME", "PATH", "USER", "LOGNAME", "SHELL", "SHLVL", "PWD", "OLDPWD", "TERM", "LANG", "LANGUAGE", "TZ", "HOST",
		"HOSTNAME", "TMPDIR", "EDITOR", "PAGER", "DISPLAY", "MAIL", "_", "GOGC", "GODEBUG", "GOMAXPROCS", "GOMEMLIMIT",
		"GOTRACEBACK", "SSL_CERT_FILE", "SSL_CERT_DIR", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "NOTIFY_SOCKET",
		"INVOCATION_ID", "JOURNAL_STREAM", "OTEL_SERVICE_NAME":
		return true
	}
	for _, prefix := range []string{"LC_", "XDG_", "SSH_", "PG", "KUBERNETES_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	link := strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://")
	return link || serviceLink.MatchString(name)
}

// nearest returns the known name that a variable was probably meant to be, or
// "". Short names are matched narrowly: any two of them are near each other.
func nearest(name string, known []string) string {
	upper := strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
	best, least := "", 3
	for _, k := range known {
		limit := 2
		if min(len(name), len(k)) < 6 {
			limit = 1
		}
		if d := distance(upper, k, limit); d <= limit && d < least {
			best, least = k, d
		}
	}
	return best
}

// distance counts insertions, deletions, substitutions and swaps of neighbours
// that turn a into b (optimal string alignment); above limit it may stop at limit+1.
func distance(a, b string, limit int) int {
	if max(len(a), len(b))-min(len(a), len(b)) > limit {
		return limit + 1
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
