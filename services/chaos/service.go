package chaos

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/posthouse-io/posthouse/pkg/local/child"
)

// Service is one instance of a program: its process, which may have several lives,
// and its own wires to the database and the bus. Its methods may be called from
// several goroutines.
type Service struct {
	Name     string // "sender-1"
	Program  string
	Database *Proxy
	Bus      *Proxy

	site *Site
	mu   sync.Mutex
	proc *child.Process
	log  *os.File
	life int
	bin  string // folder of the program
}

// stopBound is SHUTDOWN_TIMEOUT of the services and some time to spare.
const (
	shutdownTimeout = 10 * time.Second
	stopBound       = 25 * time.Second
)

// Start begins a new life, or wakes one that is stopped; one that is alive stays.
func (v *Service) Start() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.proc != nil && v.proc.Alive() {
		return v.proc.Signal(syscall.SIGCONT)
	}
	v.life++
	proc, err := child.Start(v.Name, []string{filepath.Join(v.bin, v.Program)}, v.environ(), nil, v.log)
	if err != nil {
		return err
	}
	v.proc = proc
	return nil
}

// ready waits until every service has said so once: what never starts (programs and
// schema that do not fit, a setting that is refused) proves nothing.
func (s *Site) ready(ctx context.Context) error {
	for _, v := range s.Services {
		path := filepath.Join(s.Dir, v.Name+".log")
		bounded, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("%s does not become ready", v.Name))
		err := until(bounded, "wait for the services", func(context.Context) (bool, error) {
			text, err := os.ReadFile(path)
			if err == nil && !bytes.Contains(text, []byte(`"message":"ready"`)) {
				err = fmt.Errorf("it says: %.600s", text)
			}
			return err == nil, err
		})
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// use has the next life begin with the program of another folder.
func (v *Service) use(bin string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.bin = bin
}

// Kill is kill -9.
func (v *Service) Kill() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.proc.Kill()
	v.site.note("kill -9 %s", v.Name)
}

// Term is SIGTERM; it returns when the process has ended.
func (v *Service) Term() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.site.note("SIGTERM %s", v.Name)
	return v.proc.Term(stopBound)
}

// Stop is SIGSTOP, Continue is SIGCONT.
func (v *Service) Stop() error { return v.told("SIGSTOP", syscall.SIGSTOP) }

// Continue lets it go on.
func (v *Service) Continue() error { return v.told("SIGCONT", syscall.SIGCONT) }

func (v *Service) told(name string, sig syscall.Signal) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.site.note("%s %s", name, v.Name)
	return v.proc.Signal(sig)
}

// state is the process and the number of its life; nil: it is not alive.
func (v *Service) state() (*child.Process, int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.proc == nil || !v.proc.Alive() {
		return nil, v.life
	}
	return v.proc, v.life
}

// end is for Close of the site: whatever the state.
func (v *Service) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.proc != nil {
		v.proc.Kill()
	}
	v.Database.Close()
	v.Bus.Close()
	_ = v.log.Close()
}

// environ is the environment of the process: the settings of the site, with the
// addresses of this service's wires.
func (v *Service) environ() []string {
	all := maps.Clone(v.site.env)
	u, err := url.Parse(v.site.databaseURL)
	if err == nil {
		u.Host = v.Database.Addr()
		all["DATABASE_URL"] = u.String()
	}
	all["NATS_URL"] = "nats://" + v.Bus.Addr()
	lines := []string{"PATH=" + os.Getenv("PATH"), "GORACE=halt_on_error=1"}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		lines = append(lines, name+"="+all[name])
	}
	return lines
}

func (s *Site) newService(program string, number int) (*Service, error) {
	v := &Service{Name: fmt.Sprintf("%s-%d", program, number), Program: program, site: s}
	u, err := url.Parse(s.databaseURL)
	if err != nil {
		return nil, fmt.Errorf("%s: the database has no address", v.Name)
	}
	if v.Database, err = newProxy(v.Name+" to PostgreSQL", u.Host, postgresWire); err != nil {
		return nil, err
	}
	if v.Bus, err = newProxy(v.Name+" to NATS", strings.TrimPrefix(s.natsURL, "nats://"), natsWire); err != nil {
		v.Database.Close()
		return nil, err
	}
	if v.log, err = os.OpenFile(filepath.Join(s.Dir, v.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600); err != nil {
		v.Database.Close()
		v.Bus.Close()
		return nil, fmt.Errorf("%s: %w", v.Name, err)
	}
	return v, nil
}
