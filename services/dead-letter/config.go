package deadletter

import "github.com/posthouse-io/posthouse/pkg/daemon"

// Config is everything the dead-letter service can be told.
type Config struct {
	daemon.Settings
}
