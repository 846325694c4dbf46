package housetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/local/child"
)

// programs builds the service binaries, once for a test binary, and gives their
// folder. The tests of a package have no common owner but the process; built
// tells that there is something to remove at its end.
var (
	programs = sync.OnceValues(build)
	built    atomic.Bool
)

func build() (string, error) {
	dir, err := os.MkdirTemp("", "posthouse-programs-")
	if err != nil {
		return "", err
	}
	const services = "github.com/posthouse-io/posthouse/services/"
	args := []string{"build", "-o", dir}
	if raceEnabled {
		args = append(args, "-race")
	}
	args = append(args, services+"sender/cmd/sender", services+"watchdog/cmd/watchdog", services+"dead-letter/cmd/dead-letter", services+"forwarder/cmd/forwarder", services+"verifier-retry/cmd/verifier-retry")
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		return dir, fmt.Errorf("go %v: %w\n%s", args, err, out)
	}
	return dir, nil
}

// RemovePrograms removes what Exec has built.
func RemovePrograms() {
	if built.Load() {
		dir, _ := programs()
		_ = os.RemoveAll(dir)
	}
}

// Program is one real process of a service.
type Program struct {
	Log  *Logbook
	t    *testing.T
	name string
	proc *child.Process
}

// Exec starts the built binary of a service with the settings of the site and
// these. It is killed when the test ends.
func (s *Site) Exec(name string, extra map[string]string) *Program {
	s.T.Helper()
	return Exec(s.T, name, s.Environ(extra))
}

// Exec starts the built binary of a service with exactly this environment.
func Exec(t *testing.T, name string, environ []string) *Program {
	t.Helper()
	built.Store(true)
	dir, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{Log: &Logbook{}, t: t, name: name}
	if p.proc, err = child.Start(name, []string{filepath.Join(dir, name)}, environ, nil, p.Log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		p.Log.show(t, name)
	})
	return p
}

// Signal sends one to the process.
func (p *Program) Signal(sig syscall.Signal) {
	p.t.Helper()
	if !p.proc.Alive() {
		p.t.Fatalf("send %s to %s: it has ended", sig, p.name)
	}
	if err := p.proc.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// Kill is kill -9; it returns when the process is gone.
func (p *Program) Kill() { p.proc.Kill() }

// Wait returns the exit code.
func (p *Program) Wait(bound time.Duration) int {
	p.t.Helper()
	code, err := p.proc.Wait(bound)
	if err != nil {
		p.t.Fatal(err)
	}
	return code
}
