// Command dead-letter runs one dead-letter service, configured by the environment.
package main

import (
	"os"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/services/dead-letter"
	"github.com/posthouse-io/posthouse/services/settings"
)

func main() { os.Exit(daemon.Main("dead-letter", settings.Names(), deadletter.Run)) }
