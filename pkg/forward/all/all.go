// Package all builds the forwarder that the configuration names: the one explicit
// list of ways to a receiver backend.
//
// It decides nothing but which Config is looked at: faults of a way that is not
// used do not keep a process from starting. It owns no goroutine.
package all

import (
	"errors"
	"fmt"
	"time"

	gonats "github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/filesystem"
	"github.com/posthouse-io/posthouse/pkg/forward/http"
	"github.com/posthouse-io/posthouse/pkg/forward/nats"
	"github.com/posthouse-io/posthouse/pkg/forward/s3"
	"github.com/posthouse-io/posthouse/pkg/forward/sftp"
)

// Modes; the first five have the names of the seed.
const (
	HTTPSync   = "http_post_sync"
	HTTPAsync  = "http_post_async"
	S3         = "s3_link"
	SFTP       = "sftp"
	Filesystem = "filesystem"
	NATS       = "nats"
	None       = "none"
)

// Config is one of each, and which of them counts.
type Config struct {
	Mode       string `env:"FORWARDING_MODE" envDefault:"none" oneof:"none|http_post_sync|http_post_async|s3_link|sftp|filesystem|nats" doc:"how received documents reach the receiver backend"`
	HTTP       http.Config
	S3         s3.Config
	SFTP       sftp.Config
	Filesystem filesystem.Config
	NATS       nats.Config
}

// ErrNone says that no way is configured.
var ErrNone = errors.New("FORWARDING_MODE is none: received documents have nowhere to go")

// Enabled tells whether a way is configured.
func (c Config) Enabled() bool { return c.Mode != None }

// Validate names every fault of the way that is used. The others have a Check
// instead of a Validate, since the loader of the configuration would call that.
func (c Config) Validate() error {
	switch c.Mode {
	case None:
		return nil
	case HTTPSync, HTTPAsync:
		return c.HTTP.Check()
	case S3:
		if c.S3.Link == s3.LinkNone {
			return c.S3.Check()
		}
		return errors.Join(c.S3.Check(), c.HTTP.Check())
	case SFTP:
		return c.SFTP.Check()
	case Filesystem:
		return c.Filesystem.Check()
	case NATS:
		return c.NATS.Check()
	}
	return fmt.Errorf("FORWARDING_MODE: %.32q is no way to forward", c.Mode)
}

// LongestForward bounds one Forward: a lease's max_hold must not be shorter.
func (c Config) LongestForward() time.Duration {
	switch c.Mode {
	case HTTPSync, HTTPAsync:
		return c.HTTP.LongestForward()
	case S3:
		if c.S3.Link == s3.LinkNone {
			return c.S3.LongestForward()
		}
		return c.S3.LongestForward() + c.HTTP.LongestForward()
	case SFTP:
		return c.SFTP.LongestForward()
	case Filesystem:
		return c.Filesystem.LongestForward()
	case NATS:
		return c.NATS.LongestForward()
	}
	return 0
}

// New builds the configured forwarder. conn is the process's NATS connection, for
// the mode nats without a URL of its own; it may be nil otherwise.
func New(c Config, conn *gonats.Conn) (forward.Forwarder, error) {
	switch c.Mode {
	case None:
		return nil, ErrNone
	case HTTPSync:
		return made(http.New(c.HTTP, http.Sync))
	case HTTPAsync:
		return made(http.New(c.HTTP, http.Async))
	case S3:
		if c.S3.Link == s3.LinkNone {
			return made(s3.New(c.S3, nil))
		}
		notifier, err := http.New(c.HTTP, http.Mode(c.S3.Link))
		if err != nil {
			return nil, err
		}
		f, err := s3.New(c.S3, notifier)
		if err != nil {
			return nil, errors.Join(err, notifier.Close())
		}
		return f, nil
	case SFTP:
		return made(sftp.New(c.SFTP))
	case Filesystem:
		return made(filesystem.New(c.Filesystem))
	case NATS:
		return made(nats.New(c.NATS, conn))
	}
	return nil, c.Validate()
}

// made keeps a nil pointer from becoming an interface that is not nil.
func made[F forward.Forwarder](f F, err error) (forward.Forwarder, error) {
	if err != nil {
		return nil, err
	}
	return f, nil
}
