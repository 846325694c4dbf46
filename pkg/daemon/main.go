package daemon

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"reflect"
	"runtime/debug"
	"syscall"

	"github.com/caarlos0/env/v11"
)

// Exit codes of Main.
const (
	exitOK     = 0
	exitFailed = 1
	exitConfig = 2
	exitForced = 130
)

// Main is the whole main function of a service but for os.Exit: it loads T from
// the environment, runs, and returns the exit code. 0: ended well; 1: run
// failed (the error is logged once); 2: faults in the configuration, printed to
// standard error; 130: a second SIGINT or SIGTERM did not want to wait for the
// orderly end that the first one began.
func Main[T any](name string, known []string, run func(ctx context.Context, cfg T) error) int {
	Tune(os.Environ())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	return start(context.Background(), name, os.Environ(), known, os.Stderr, signals, run)
}

func start[T any](ctx context.Context, name string, environ, known []string, stderr io.Writer, signals <-chan os.Signal, run func(context.Context, T) error) int {
	cfg, warnings, err := Load[T](environ, known)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", name, err)
		return exitConfig
	}
	log := NewLogger(stderr, logSettings(environ), name, "")
	for _, line := range warnings {
		log.Warn().Msg(line)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- run(ctx, cfg) }()
	for told := false; ; told = true {
		select {
		case err := <-done:
			if err != nil {
				log.Error().Err(err).Msg("failed")
				return exitFailed
			}
			return exitOK
		case s := <-signals:
			if told {
				log.Warn().Str("signal", s.String()).Msg("leaving at once")
				return exitForced
			}
			log.Info().Str("signal", s.String()).Msg("told to stop")
			cancel()
		}
	}
}

// Tune trades memory for time, once per process: what lives long in a service is
// small (some 10 MB) against what passes through it, so the collector may wait
// until the heap is five times that. GOGC in the environment decides otherwise.
func Tune(environ []string) {
	if _, set := env.ToMap(environ)["GOGC"]; !set {
		debug.SetGCPercent(400)
	}
}

// logSettings reads LOG_LEVEL and LOG_FORMAT alone: T may hold the settings
// anywhere, and they have been checked with it.
func logSettings(environ []string) Settings {
	var s Settings
	l := loader{environ: env.ToMap(environ), faulty: map[string]bool{}}
	list, _ := settingsOf(reflect.ValueOf(&s).Elem(), "")
	for i := range list {
		if list[i].Name == "LOG_LEVEL" || list[i].Name == "LOG_FORMAT" {
			l.fill(&list[i])
		}
	}
	return s
}
