package chaos

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// sampler looks at the services' processes twice a second, where /proc is.
type sampler struct {
	mu      sync.Mutex
	samples []Sample
	stop    chan struct{}
	done    chan struct{}
}

const (
	sampleEvery = 500 * time.Millisecond
	mostSamples = 200_000
)

func (p *sampler) run(s *Site) {
	p.stop, p.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(p.done)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-p.stop:
				return
			case <-tick.C:
			}
			for _, v := range s.Services {
				if proc, life := v.state(); proc != nil {
					if one, ok := sample(proc.PID()); ok {
						one.Process = fmt.Sprintf("%s life %d", v.Name, life)
						p.mu.Lock()
						if len(p.samples) < mostSamples {
							p.samples = append(p.samples, one)
						}
						p.mu.Unlock()
					}
				}
			}
		}
	}()
}

func (p *sampler) end() {
	if p.stop != nil {
		close(p.stop)
		<-p.done
		p.stop = nil
	}
}

func (p *sampler) all() []Sample {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Sample(nil), p.samples...)
}

// sample reads /proc; false: there is no such process, or no /proc.
func sample(pid int) (s Sample, ok bool) {
	dir := "/proc/" + strconv.Itoa(pid)
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		return s, false
	}
	s.At = time.Now()
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		switch n, _ := strconv.ParseInt(fields[0], 10, 64); name {
		case "VmRSS":
			s.RSS = n << 10
		case "Threads":
			s.Threads = int(n)
		}
	}
	files, err := os.ReadDir(dir + "/fd")
	s.Files = len(files)
	return s, err == nil && s.RSS > 0
}
