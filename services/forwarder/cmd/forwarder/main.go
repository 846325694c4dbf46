// Command forwarder runs one forwarder service, configured by the environment.
package main

import (
	"os"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/services/forwarder"
	"github.com/posthouse-io/posthouse/services/settings"
)

func main() { os.Exit(daemon.Main("forwarder", settings.Names(), forwarder.Run)) }
