package child_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/local/child"
)

type said struct {
	Got int `json:"got"`
}

func start(t *testing.T, script string, order any, log *bytes.Buffer) *child.Process {
	t.Helper()
	p, err := child.Start("helper", []string{"/bin/sh", "-c", script}, os.Environ(), order, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p
}

func TestOrderAnswerEnd(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	// It talks more than a pipe holds after its input has ended, and then to the log.
	p := start(t, `read n; echo "{\"got\":$n}"; cat >/dev/null; seq 100000; echo bye >&2`, 7, &log)
	var answer said
	if err := p.Hear(t.Context(), &answer); err != nil || answer.Got != 7 {
		t.Fatalf("%+v, %v", answer, err)
	}
	if !p.Alive() || p.PID() <= 0 {
		t.Errorf("pid %d is not alive", p.PID())
	}
	if err := p.Term(time.Minute); err != nil {
		t.Error(err)
	}
	if p.Alive() || log.String() != "bye\n" {
		t.Errorf("it has ended, and its log holds %q", log.String())
	}
	if err := p.Signal(syscall.SIGCONT); err != nil {
		t.Errorf("a signal to one that is gone: %v", err)
	}
	p.Kill()
}

// The last word of one that ends by itself is heard.
func TestLastWord(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	p := start(t, `read n; echo "{\"got\":$n}"; echo nonsense`, 1, &log)
	for p.Alive() {
		runtime.Gosched()
	}
	var answer said
	if err := p.Hear(t.Context(), &answer); err != nil || answer.Got != 1 {
		t.Errorf("%+v, %v", answer, err)
	}
	if err := p.Hear(t.Context(), &answer); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("nonsense: %v", err)
	}
	if err := p.Hear(t.Context(), &answer); err == nil || !strings.Contains(err.Error(), "helper ended") {
		t.Errorf("after its end: %v", err)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	var log, silentLog bytes.Buffer
	if p := start(t, "exec sleep 600", nil, &log); p.Term(time.Minute) != nil {
		t.Error("SIGTERM does not end it")
	}
	stubborn := start(t, "exec sleep 600", 1, &log) // it does not mind its input
	if err := stubborn.Term(10 * time.Millisecond); err == nil || stubborn.Alive() {
		t.Errorf("one that does not end: %v, alive %v", err, stubborn.Alive())
	}

	silent := start(t, "read n; exec sleep 600", 1, &silentLog)
	why := errors.New("long enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := silent.Hear(ctx, new(said)); !errors.Is(err, why) {
		t.Errorf("heard %v", err)
	}
	silent.Kill()
	if silent.Alive() {
		t.Error("it lives on")
	}

	if code, err := start(t, "exit 3", nil, &log).Wait(time.Minute); code != 3 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
	busy := start(t, "exec sleep 600", nil, &log)
	if code, err := busy.Wait(time.Millisecond); err == nil || !busy.Alive() {
		t.Errorf("one that goes on: %d, %v", code, err)
	}
	busy.Kill()
	if code, err := busy.Wait(time.Minute); code != -1 || err != nil {
		t.Errorf("exit code of one that was killed: %d, %v", code, err)
	}

	if _, err := child.Start("nobody", []string{"/does/not/exist"}, nil, nil, &log); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("a missing program: %v", err)
	}
}
