package local_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/local"
)

// ownerDir and ownerDurable make this test binary the owner of a cluster that a
// test kills from outside.
const (
	ownerDir     = "LOCAL_TEST_OWNER_DIR"
	ownerDurable = "LOCAL_TEST_OWNER_DURABLE"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerDir); dir != "" {
		own(dir, os.Getenv(ownerDurable) == "true")
		return
	}
	os.Exit(m.Run())
}

// own starts a cluster, tells its process id and URL, and waits for its end.
func own(dir string, durable bool) {
	p, err := local.StartPostgres(context.Background(), local.PostgresConfig{Dir: dir, Durable: durable, Log: zerolog.Nop()})
	if err != nil {
		fmt.Println("failed", err)
		os.Exit(1)
	}
	fmt.Println(p.PID(), p.URL("postgres"))
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test, should that forget us
	_ = p.Stop(context.Background())
}

// startOwner runs own in a process of its own.
func startOwner(t *testing.T, dir string, durable bool) (owner *exec.Cmd, server int, url string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe)
	cmd.Env = append(os.Environ(), ownerDir+"="+dir, ownerDurable+"="+strconv.FormatBool(durable))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, url, _ := strings.Cut(strings.TrimSpace(line), " ")
	if server, err = strconv.Atoi(pid); err != nil {
		t.Fatalf("owner said %q", line)
	}
	return cmd, server, url
}
