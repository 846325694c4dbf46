package filesystem

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/posthouse-io/posthouse/pkg/forward"
)

// Layouts.
const (
	Flat           = "flat"            // all in one folder
	PerTransaction = "per-transaction" // a folder for each document, named by its id
	ByDate         = "by-date"         // yyyy/mm/dd of reception, UTC
	ByReceiver     = "by-receiver"     // a folder for each receiver
)

// Config describes the folder.
type Config struct {
	Directory     string        `env:"FORWARDING_FILESYSTEM_DIRECTORY" doc:"existing folder that documents are written to"`
	Layout        string        `env:"FORWARDING_FILESYSTEM_LAYOUT" envDefault:"flat" doc:"flat, per-transaction (a folder for each document), by-date (yyyy/mm/dd) or by-receiver"`
	Pattern       string        `env:"FORWARDING_FILESYSTEM_FILENAME_PATTERN" envDefault:"{sbdh-instance-id}_{incoming-id}" doc:"name of a file without .xml; {datetime}, {incoming-id} (needed), {sbdh-instance-id}, {tenant}"`
	WriteMetadata bool          `env:"FORWARDING_FILESYSTEM_WRITE_METADATA" envDefault:"false" doc:"write a .json file with the document's metadata, before the document"`
	Timeout       time.Duration `env:"FORWARDING_FILESYSTEM_TIMEOUT" envDefault:"2m" min:"10ms" max:"1h" doc:"limit for one forward from beginning to end"`
}

// LongestForward bounds one Forward while the file system answers.
func (c Config) LongestForward() time.Duration { return c.Timeout + time.Second }

// Check names every fault at once, each by its variable.
func (c Config) Check() error {
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf(name+": "+format, args...))
	}
	if !filepath.IsAbs(c.Directory) {
		fault("FORWARDING_FILESYSTEM_DIRECTORY", "%.200q is not an absolute path", c.Directory)
	}
	switch c.Layout {
	case Flat, PerTransaction, ByDate, ByReceiver:
	default:
		fault("FORWARDING_FILESYSTEM_LAYOUT", "%.64q is none of flat, per-transaction, by-date, by-receiver", c.Layout)
	}
	if _, err := forward.ParsePattern(c.Pattern); err != nil {
		fault("FORWARDING_FILESYSTEM_FILENAME_PATTERN", "%w", err)
	}
	if c.Timeout <= 0 {
		fault("FORWARDING_FILESYSTEM_TIMEOUT", "%s must be more than 0", c.Timeout)
	}
	return errors.Join(faults...)
}

// String names the folder.
func (c Config) String() string { return "folder " + c.Directory }

// folder is where a document goes, relative to the directory.
func (c Config) folder(d *forward.Document) string {
	switch c.Layout {
	case PerTransaction:
		return d.ID.String()
	case ByDate:
		return d.ReceivedAt.UTC().Format("2006/01/02")
	case ByReceiver:
		return d.ReceiverFolder()
	}
	return "."
}
