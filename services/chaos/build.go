package chaos

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// The programs under test.
const (
	Sender     = "sender"
	Watchdog   = "watchdog"
	DeadLetter = "dead-letter"
)

// Build makes the programs in dir, from the module whose folder is at (empty: this
// one's), with the race detector if asked to, and with build tags.
func Build(ctx context.Context, dir, at string, race bool, tags ...string) error {
	const services = "github.com/posthouse-io/posthouse/services/"
	args := []string{"build", "-o", dir}
	if race {
		args = append(args, "-race")
	}
	if len(tags) > 0 {
		args = append(args, "-tags", strings.Join(tags, ","))
	}
	args = append(args, services+"sender/cmd/sender", services+"watchdog/cmd/watchdog", services+"dead-letter/cmd/dead-letter")
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = at
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}
