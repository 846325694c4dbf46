package house_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/services/house/housetest"
)

// TestMain looks for goroutines that outlived their owners when every test is
// over: here that is every service, stopped in every way that the tests know.
func TestMain(m *testing.M) {
	code := localtest.Main(m)
	housetest.RemovePrograms()
	// A NATS server that is stopped in the middle of an atomic batch leaves the
	// batch's staging store behind; elsewhere that ends with the server's process.
	const server = "github.com/nats-io/nats-server/v2/server"
	staging := []goleak.Option{goleak.IgnoreTopFunction(server + ".(*msgBlock).flushLoop"),
		goleak.IgnoreTopFunction(server + ".(*fileStore).flushStreamStateLoop"), goleak.IgnoreTopFunction(server + "/ats.Register.func1")}
	if err := goleak.Find(staging...); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
