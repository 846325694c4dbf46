package chaos

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// built and wrong are the programs of this tree, as they are shipped and with the
// faults of package planted, made once for a test binary, with the race detector when
// it has it. The tests of a package have no common owner but the process.
var (
	built = sync.OnceValues(func() (string, error) { return build(&madeDir) })
	wrong = sync.OnceValues(func() (string, error) { return build(&wrongDir, PlantedTag) })

	madeDir, wrongDir atomic.Pointer[string]
)

func build(made *atomic.Pointer[string], tags ...string) (string, error) {
	dir, err := os.MkdirTemp("", "posthouse-chaos-bin-")
	if err == nil {
		made.Store(&dir)
		err = Build(context.Background(), dir, "", raceEnabled, tags...)
	}
	return dir, err
}

func removePrograms() {
	for _, made := range []*atomic.Pointer[string]{&madeDir, &wrongDir} {
		if dir := made.Load(); dir != nil {
			_ = os.RemoveAll(*dir)
		}
	}
}

func programs(t *testing.T) string      { return ready(t, built) }
func wrongPrograms(t *testing.T) string { return ready(t, wrong) }

func ready(t *testing.T, built func() (string, error)) string {
	t.Helper()
	dir, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// turns bounds how many sites stand at a time: the machine may be busy, and most of
// a run is waiting.
var turns = make(chan struct{}, 3)

func takeTurn() (done func()) {
	turns <- struct{}{}
	return func() { <-turns }
}

// TestMain plays the parts of a site, which are this program once more, and looks
// for goroutines that outlived their sites.
func TestMain(m *testing.M) {
	if is, err := Part(context.Background(), os.Args[1:], os.Stdin, os.Stdout); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	removePrograms()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
