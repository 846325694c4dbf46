// Command sender runs one sender service, configured by the environment.
package main

import (
	"os"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/services/sender"
	"github.com/posthouse-io/posthouse/services/settings"
)

func main() { os.Exit(daemon.Main("sender", settings.Names(), sender.Run)) }
