package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ticks is USER_HZ, the unit of /proc, the same on every Linux.
const ticks = 100

// usage is CPU time in seconds since some start, by who used it.
type usage struct {
	at            time.Time
	self          float64
	postgres      float64 // the postmaster, its children and those that it has buried
	child         float64 // a process of ours: NATS, or River
	machine       float64 // everybody; 0 where there is no /proc
	postgresKnown bool
}

// readUsage takes the accounts of this process, of a PostgreSQL server and of a
// process beside it.
func readUsage(postmaster, child int) usage {
	u := usage{at: time.Now()}
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) == nil {
		u.self = float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
	}
	if p, ok := readProcess(child); ok {
		u.child = p.own
	}
	if p, ok := readProcess(postmaster); ok {
		u.postgres, u.postgresKnown = p.own+p.buried, true
		entries, _ := os.ReadDir("/proc")
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			if c, ok := readProcess(pid); ok && c.parent == postmaster {
				u.postgres += c.own
			}
		}
	}
	u.machine = readMachine()
	return u
}

type processTime struct {
	parent      int
	own, buried float64
}

// readProcess reads /proc/<pid>/stat (proc(5)): fields 4 ppid, 14 to 17 utime,
// stime, cutime, cstime. The command in field 2 may hold anything.
func readProcess(pid int) (processTime, bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return processTime{}, false
	}
	f := strings.Fields(string(raw[strings.LastIndexByte(string(raw), ')')+1:]))
	if len(f) < 15 {
		return processTime{}, false
	}
	parent, _ := strconv.Atoi(f[1])
	return processTime{parent: parent, own: seconds(f[11]) + seconds(f[12]), buried: seconds(f[13]) + seconds(f[14])}, true
}

// readMachine sums the busy columns of /proc/stat: user, nice, system, irq,
// softirq; idle, waiting and stolen time left out.
func readMachine() (busy float64) {
	raw, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(raw), "\n")
	for i, f := range strings.Fields(first) {
		switch i {
		case 1, 2, 3, 6, 7:
			busy += seconds(f)
		}
	}
	return busy
}

func seconds(field string) float64 {
	n, _ := strconv.ParseFloat(field, 64)
	return n / ticks
}

// since is what was used between two readings.
func (u usage) since(before usage) usage {
	return usage{at: u.at, self: u.self - before.self, postgres: u.postgres - before.postgres, child: u.child - before.child,
		machine: u.machine - before.machine, postgresKnown: u.postgresKnown && before.postgresKnown}
}

// foreign is how many cores others used meanwhile.
func (u usage) foreign(took time.Duration) float64 {
	return max(0, (u.machine-u.self-u.postgres-u.child)/took.Seconds())
}
