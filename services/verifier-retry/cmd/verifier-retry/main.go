// Command verifier-retry runs one verifier-retry service, configured by the
// environment.
package main

import (
	"os"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/services/settings"
	verifierretry "github.com/posthouse-io/posthouse/services/verifier-retry"
)

func main() { os.Exit(daemon.Main("verifier-retry", settings.Names(), verifierretry.Run)) }
