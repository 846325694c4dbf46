// Command gateway runs one gateway service, configured by the environment.
package main

import (
	"os"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/services/gateway"
	"github.com/posthouse-io/posthouse/services/settings"
)

func main() { os.Exit(daemon.Main("gateway", settings.Names(), gateway.Run)) }
