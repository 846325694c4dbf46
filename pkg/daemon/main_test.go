package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

func TestMain(m *testing.M) {
	code := localtest.Main(m)
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// output is a standard error that several goroutines may write and read.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) count(s string) int { return strings.Count(o.String(), s) }

type tiny struct {
	Size int `env:"TINY_SIZE" envDefault:"3"`
}

func TestMainExitCodes(t *testing.T) {
	t.Parallel()
	none := make(chan os.Signal)
	ran := func(_ context.Context, c tiny) error {
		if c.Size != 4 {
			return fmt.Errorf("size %d", c.Size)
		}
		return nil
	}
	for name, c := range map[string]struct {
		environ []string
		code    int
		says    string
	}{
		"well":   {[]string{"TINY_SIZE=4"}, 0, ""},
		"failed": {nil, 1, "size 3"},
		"config": {[]string{"TINY_SIZE=x", "TINI_SIZE=4"}, 2, "TINY_SIZE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out output
			if code := start(t.Context(), "probe", c.environ, nil, &out, none, ran); code != c.code {
				t.Fatalf("exit code %d, want %d: %s", code, c.code, out.String())
			}
			if !strings.Contains(out.String(), c.says) {
				t.Errorf("output %q does not say %q", out.String(), c.says)
			}
			if c.code == 1 && out.count("size 3") != 1 {
				t.Errorf("told %d times: %s", out.count("size 3"), out.String())
			}
		})
	}
}

func TestMainSignals(t *testing.T) {
	t.Parallel()
	t.Run("the first ends the context", func(t *testing.T) {
		t.Parallel()
		var out output
		signals := make(chan os.Signal, 1)
		code := start(t.Context(), "probe", nil, nil, &out, signals, func(ctx context.Context, _ tiny) error {
			signals <- syscall.SIGTERM
			<-ctx.Done()
			return nil
		})
		if code != 0 {
			t.Fatalf("exit code %d: %s", code, out.String())
		}
	})
	t.Run("the second leaves at once", func(t *testing.T) {
		t.Parallel()
		var out output
		signals, release := make(chan os.Signal, 2), make(chan struct{})
		gone := make(chan struct{})
		code := start(t.Context(), "probe", nil, nil, &out, signals, func(context.Context, tiny) error {
			defer close(gone)
			signals <- syscall.SIGINT
			signals <- syscall.SIGINT
			<-release
			return errors.New("too late")
		})
		if code != 130 {
			t.Fatalf("exit code %d: %s", code, out.String())
		}
		close(release)
		<-gone
	})
}

// eventually waits for a condition of a test.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	localtest.Eventually(t, 30*time.Second, func() error {
		if ok() {
			return nil
		}
		return errors.New(what)
	})
}
