// Package settings knows every setting of every program, so that a misspelt one
// is recognised whichever program it was meant for, and so that the README's
// tables are printed from the code. It decides nothing and starts nothing.
package settings

import (
	"fmt"
	"io"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	deadletter "github.com/posthouse-io/posthouse/services/dead-letter"
	"github.com/posthouse-io/posthouse/services/forwarder"
	"github.com/posthouse-io/posthouse/services/gateway"
	"github.com/posthouse-io/posthouse/services/sender"
	verifierretry "github.com/posthouse-io/posthouse/services/verifier-retry"
	"github.com/posthouse-io/posthouse/services/watchdog"
	"github.com/posthouse-io/posthouse/streams"
)

// section is one table: what a program reads beyond the sections before it.
type section struct {
	title string
	cfg   any
}

func sections() []section {
	return []section{
		{"Every service", daemon.Settings{}},
		{"sender", sender.Config{}},
		{"forwarder", forwarder.Config{}},
		{"verifier-retry", verifierretry.Config{}},
		{"gateway", gateway.Config{}},
		{"watchdog", watchdog.Config{}},
		{"dead-letter", deadletter.Config{}},
		{"`posthouse streams apply`", streams.Options{}},
	}
}

// Names lists every variable that some program reads.
func Names() []string {
	names := []string{"POSTHOUSE_FIXTURES", "POSTHOUSE_DATA", "NATS_JS_DOMAIN"}
	for _, s := range sections() {
		names = append(names, daemon.Names(s.cfg)...)
	}
	return names
}

// Print writes the tables of the README: each variable once, under the first
// program that reads it.
func Print(w io.Writer) error {
	seen := make(map[string]bool)
	for _, s := range sections() {
		var fresh []daemon.Variable
		for _, v := range daemon.Describe(s.cfg) {
			if !seen[v.Name] {
				seen[v.Name] = true
				fresh = append(fresh, v)
			}
		}
		if len(fresh) == 0 {
			continue
		}
		if _, err := fmt.Fprintf(w, "**%s**\n\n", s.title); err != nil {
			return err
		}
		if err := daemon.Table(w, fresh); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	return nil
}
