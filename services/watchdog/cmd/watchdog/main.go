// Command watchdog runs one watchdog service, configured by the environment.
package main

import (
	"os"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/services/settings"
	"github.com/posthouse-io/posthouse/services/watchdog"
)

func main() { os.Exit(daemon.Main("watchdog", settings.Names(), watchdog.Run)) }
