package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// riverAt is where the module of the comparison lies in the repository.
const riverAt = "services/bench/river"

// buildRiver compiles the comparison and returns the program. It is a module of
// its own, outside the workspace, so that the product does not depend on River.
func (s *servers) buildRiver(ctx context.Context, dir string) (string, error) {
	if dir == "" {
		var err error
		if dir, err = findRiver(); err != nil {
			return "", err
		}
	}
	program := filepath.Join(s.dir, "river")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build River's program in %s: %w: %.2000s", dir, err, out)
	}
	return program, nil
}

// findRiver looks for the module from the present folder upwards.
func findRiver() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find River's program: %w", err)
	}
	for {
		for _, dir := range []string{filepath.Join(at, riverAt), filepath.Join(at, "river")} {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				return dir, nil
			}
		}
		up := filepath.Dir(at)
		if up == at {
			return "", errors.New("find River's program: say with --river-dir where " + riverAt + " of the repository lies")
		}
		at = up
	}
}

// riverRun is what one run of River showed.
type riverRun struct {
	perSecond float64
	inserted  float64  // per second, by its InsertManyFast, before
	cpu       *float64 // microseconds per job, of its process and of PostgreSQL
}

// river works jobs of a shape in a fresh database on the same server.
func (s *servers) river(ctx context.Context, program, shape string, jobs int) (r riverRun, err error) {
	name := s.name()
	if err := s.postgres.CreateDatabase(ctx, name); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, s.drop(context.WithoutCancel(ctx), name)) }()
	cmd := exec.CommandContext(ctx, program, "-shape", shape, "-jobs", fmt.Sprint(jobs))
	cmd.Env = append(os.Environ(), "DATABASE_URL="+s.postgres.URL(name))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay, cmd.Stderr = 10*time.Second, s.log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, fmt.Errorf("river (%s): %w", shape, err)
	}
	if err := cmd.Start(); err != nil {
		return r, fmt.Errorf("river (%s): %w", shape, err)
	}
	r, err = s.hearRiver(bufio.NewReader(out), cmd.Process.Pid, jobs)
	if e := cmd.Wait(); err != nil || e != nil {
		return r, fmt.Errorf("river (%s): %w", shape, errors.Join(err, e))
	}
	return r, nil
}

// hearRiver reads the two lines that the program says: when its jobs are loaded,
// and its result when they are worked.
func (s *servers) hearRiver(out *bufio.Reader, pid, jobs int) (r riverRun, err error) {
	var loaded struct {
		InsertPerS float64 `json:"insert_per_s"`
	}
	line, err := out.ReadBytes('\n')
	if err != nil {
		return r, errors.New("it did not come to load its jobs: see the log")
	}
	if err := json.Unmarshal(line, &loaded); err != nil {
		return r, fmt.Errorf("it said %.100q: %w", line, err)
	}
	r.inserted = loaded.InsertPerS
	before := readUsage(s.postgres.PID(), pid)
	if line, err = out.ReadBytes('\n'); err != nil {
		return r, errors.New("it did not come to its result: see the log")
	}
	if used := readUsage(s.postgres.PID(), pid).since(before); used.postgresKnown {
		r.cpu = figure((used.postgres + used.child) * 1e6 / float64(jobs))
	}
	var result struct {
		PerS float64 `json:"per_s"`
	}
	if err := json.Unmarshal(line, &result); err != nil || result.PerS <= 0 {
		return r, fmt.Errorf("it said %.100q, which is no result", line)
	}
	r.perSecond = result.PerS
	return r, nil
}
