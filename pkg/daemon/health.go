package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

const checkTimeout = 2 * time.Second

// Phases of a process, as /readyz names them.
const (
	phaseStarting = "starting"
	phaseReady    = "ready"
	phaseStopping = "stopping"
	phaseFailing  = "failing" // ready but for a check
)

// Health answers whether the process lives (/healthz: it answers at all) and
// whether it may be given work (/readyz: started, not stopping, and every check
// passes). Safe for concurrent use.
type Health struct {
	mu     sync.Mutex
	phase  string
	checks []*check
	addr   string
}

// check is one named question. One answer at a time is awaited: a check that
// hangs does not pile up goroutines behind it.
type check struct {
	name string
	ask  func(context.Context) error
	busy chan struct{} // holds a token while a run is on its way
}

func newHealth() *Health { return &Health{phase: phaseStarting} }

// Add registers a check. It gets two seconds; its context ends then. Its error
// text is served, so it must not hold a secret.
func (h *Health) Add(name string, ask func(ctx context.Context) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checks = append(h.checks, &check{name: name, ask: ask, busy: make(chan struct{}, 1)})
}

// Addr is where health is served, "" when it is not.
func (h *Health) Addr() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.addr
}

func (h *Health) enter(phase string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.phase = phase
}

// Report is the body of /readyz.
type Report struct {
	Status string                 `json:"status"` // starting, ready, failing, stopping
	Checks map[string]CheckResult `json:"checks"`
}

// CheckResult is the answer of one check.
type CheckResult struct {
	OK    bool   `json:"ok"`
	Error string `json:"error,omitempty"`
	Took  string `json:"took"` // "1.2ms"
}

// Report asks every check, all at once, and takes no longer than the slowest
// bound.
func (h *Health) Report(ctx context.Context) Report {
	h.mu.Lock()
	checks, report := h.checks, Report{Status: h.phase, Checks: map[string]CheckResult{}}
	h.mu.Unlock()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, c := range checks {
		wg.Go(func() {
			start := time.Now()
			err := c.run(ctx)
			r := CheckResult{OK: err == nil, Took: time.Since(start).Round(10 * time.Microsecond).String()}
			if err != nil {
				r.Error = err.Error()
			}
			mu.Lock()
			defer mu.Unlock()
			report.Checks[c.name] = r
			if err != nil && report.Status == phaseReady {
				report.Status = phaseFailing
			}
		})
	}
	wg.Wait()
	return report
}

func (c *check) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return errors.New("an earlier run of this check has not come back")
	}
	answer := make(chan error, 1)
	go func() {
		defer func() { <-c.busy }()
		answer <- c.ask(ctx)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("no answer within %s", checkTimeout)
	}
}

// Handler serves GET /healthz and /readyz.
func (h *Health) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "alive"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		report, code := h.Report(r.Context()), http.StatusOK
		if report.Status != phaseReady {
			code = http.StatusServiceUnavailable
		}
		answer(w, code, report)
	})
	return mux
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// serve listens at once, so that a taken port is an error of the start, and
// returns the function that stops the server and waits for it.
func (h *Health) serve(ctx context.Context, listen string, log zerolog.Logger) (stop func(context.Context), err error) {
	if listen == "" {
		return func(context.Context) {}, nil
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("serve health at HEALTH_LISTEN: %w", err)
	}
	h.mu.Lock()
	h.addr = l.Addr().String()
	h.mu.Unlock()
	server := &http.Server{
		Handler:           h.Handler(),
		ReadHeaderTimeout: 2 * time.Second,
		ReadTimeout:       5 * time.Second,
		WriteTimeout:      2*checkTimeout + time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error().Err(err).Msg("health is no longer served")
		}
	}()
	return func(ctx context.Context) {
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
		<-done
	}, nil
}
