package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"

	"github.com/posthouse-io/posthouse/migrations"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

// settings are those of a process on the servers of this test.
func settings(t *testing.T, database, natsURL string) Settings {
	t.Helper()
	s, _, err := Load[Settings]([]string{"DATABASE_URL=" + database, "NATS_URL=" + natsURL, "HEALTH_LISTEN=127.0.0.1:0", "SHUTDOWN_TIMEOUT=1s", "LOG_LEVEL=debug"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// running is a process under test; its result comes on done.
type running struct {
	stop context.CancelFunc
	done chan error
	out  *output
}

func launch(t *testing.T, s Settings, body Body) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{stop: cancel, done: make(chan error, 1), out: &output{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.done <- run(ctx, "probe", s, r.out, body)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		if t.Failed() {
			t.Log(r.out.String())
		}
	})
	return r
}

func (r *running) wait(t *testing.T, bound time.Duration) error {
	t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(bound):
		t.Fatalf("still running after %s", bound)
		return nil
	}
}

func TestRunDrainsInTime(t *testing.T) {
	t.Parallel()
	s := settings(t, localtest.Postgres(t), localtest.EmptyNATS(t).URL())
	s.ShutdownTimeout = 30 * time.Second
	up := make(chan *Process, 1)
	finished := errors.New("finished")
	r := launch(t, s, func(taking, working context.Context, p *Process) error {
		up <- p
		<-taking.Done()
		var one int
		if err := p.DB.QueryRow(working, "SELECT 1").Scan(&one); err != nil || working.Err() != nil {
			t.Errorf("work in hand must go on: %v, %v", err, working.Err())
		}
		return finished
	})
	p := <-up
	var name string
	if err := p.DB.QueryRow(t.Context(), "SELECT current_setting('application_name')").Scan(&name); err != nil || name != "posthouse-probe" {
		t.Errorf("application_name %q, %v", name, err)
	}
	if err := p.NATS.Publish("x", nil); err != nil {
		t.Error(err)
	}
	r.stop()
	if err := r.wait(t, 20*time.Second); !errors.Is(err, finished) {
		t.Fatalf("Run returned %v, want the body's error", err)
	}
	if !p.NATS.IsClosed() {
		t.Error("NATS is still open")
	}
	if err := p.DB.Ping(t.Context()); err == nil {
		t.Error("the pool is still open")
	}
	if strings.Contains(r.out.String(), p.Settings.DatabaseURL.Reveal()) {
		t.Error("the log shows the database URL")
	}
}

func TestRunEndsWithItsBody(t *testing.T) {
	t.Parallel()
	s := settings(t, localtest.Postgres(t), localtest.EmptyNATS(t).URL())
	if err := launch(t, s, func(context.Context, context.Context, *Process) error { return nil }).wait(t, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	r := launch(t, s, func(taking, _ context.Context, _ *Process) error { <-taking.Done(); return taking.Err() })
	eventually(t, "ready", func() bool { return r.out.count(`"ready"`) == 1 })
	r.stop()
	if err := r.wait(t, 20*time.Second); err != nil {
		t.Fatalf("being told to stop is no error: %v", err)
	}
}

func TestRunCutsOffAndThenLeaves(t *testing.T) {
	t.Parallel()
	database, server := localtest.Postgres(t), localtest.EmptyNATS(t).URL()
	t.Run("the working context ends", func(t *testing.T) {
		t.Parallel()
		up := make(chan struct{})
		r := launch(t, settings(t, database, server), func(_, working context.Context, _ *Process) error {
			close(up)
			<-working.Done()
			return context.Cause(working)
		})
		<-up
		start := time.Now()
		r.stop()
		if err := r.wait(t, 20*time.Second); !errors.Is(err, ErrShutdownTimeout) {
			t.Fatalf("Run returned %v", err)
		}
		if took := time.Since(start); took < time.Second {
			t.Errorf("cut off after %s, before SHUTDOWN_TIMEOUT", took)
		}
	})
	t.Run("the body ignores it", func(t *testing.T) {
		t.Parallel()
		up, release, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
		r := launch(t, settings(t, database, server), func(_, _ context.Context, p *Process) error {
			defer close(gone)
			conn, err := p.DB.Acquire(t.Context())
			if err != nil {
				t.Error(err)
				return err
			}
			defer conn.Release()
			close(up)
			<-release
			return nil
		})
		<-up
		start := time.Now()
		r.stop()
		err := r.wait(t, 30*time.Second)
		if !errors.Is(err, ErrWorkLeft) {
			t.Errorf("Run returned %v", err)
		}
		if took, bound := time.Since(start), time.Second+lastGrace+3*closeTimeout+2*time.Second; took > bound {
			t.Errorf("took %s, more than %s", took, bound)
		}
		if r.out.count("connections are still in use") != 1 {
			t.Error("the held connection is not told")
		}
		close(release)
		<-gone
	})
}

func TestRunEndsWhenNATSIsClosed(t *testing.T) {
	t.Parallel()
	r := launch(t, settings(t, localtest.Postgres(t), localtest.EmptyNATS(t).URL()), func(taking, _ context.Context, p *Process) error {
		p.NATS.Close()
		<-taking.Done()
		return taking.Err()
	})
	if err := r.wait(t, 20*time.Second); !errors.Is(err, ErrNATSClosed) {
		t.Fatalf("Run returned %v", err)
	}
}

func TestRunWaitsForItsServers(t *testing.T) {
	t.Parallel()
	database := localtest.EmptyDatabase(t)
	server := localtest.EmptyNATS(t)
	url := server.URL()
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	up := make(chan *Process, 1)
	r := launch(t, settings(t, database, url), func(taking, _ context.Context, p *Process) error {
		up <- p
		<-taking.Done()
		return nil
	})
	eventually(t, "the missing schema is told", func() bool { return r.out.count("posthouse migrate") > 0 })
	eventually(t, "the missing server is told", func() bool { return r.out.count("nats does not answer") > 0 })
	address := healthAddress(t, r)
	if code, report := readyz(t, address); code != http.StatusServiceUnavailable || report.Status != phaseStarting {
		t.Errorf("readyz %d %+v before the start", code, report)
	}
	if code := get(t, address+"/healthz", nil); code != http.StatusOK {
		t.Errorf("healthz %d", code)
	}
	if _, err := migrations.Up(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := <-up
	if told := r.out.count("no Posthouse schema yet"); told != 1 { // on the way it may be seen half migrated
		t.Errorf("the missing schema was told %d times", told)
	}
	var code int
	var report Report
	eventually(t, "ready", func() bool { code, report = readyz(t, address); return code == http.StatusOK })
	if !report.Checks["db"].OK || !report.Checks["nats"].OK || report.Status != phaseReady {
		t.Errorf("%+v", report)
	}

	p.Health.Add("sink", func(context.Context) error { return errors.New("full") })
	if code, report = readyz(t, address); code != http.StatusServiceUnavailable || report.Status != phaseFailing || report.Checks["sink"].Error != "full" {
		t.Errorf("%d %+v", code, report)
	}
	r.stop()
	if err := r.wait(t, 20*time.Second); err != nil {
		t.Fatal(err)
	}
}

func TestRunStopsWhileItWaits(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := nobody.Addr().String()
	nobody.Close()
	r := launch(t, settings(t, "postgres://u:hunter2secret@"+address+"/d", "nats://"+address), func(context.Context, context.Context, *Process) error {
		t.Error("started without its servers")
		return nil
	})
	eventually(t, "both are told", func() bool {
		return r.out.count(`"for":"database"`) > 0 && r.out.count("nats does not answer") > 0
	})
	r.stop()
	if err := r.wait(t, 20*time.Second); err != nil {
		t.Fatalf("being told to stop is no error: %v", err)
	}
	if r.out.count("hunter2secret") > 0 {
		t.Errorf("the log shows the password: %s", r.out)
	}
}

func TestRunRefusesASchemaThatLeftItBehind(t *testing.T) {
	t.Parallel()
	database := localtest.Postgres(t)
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "UPDATE schema_compat SET oldest_binary = 9999"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := launch(t, settings(t, database, localtest.EmptyNATS(t).URL()), func(context.Context, context.Context, *Process) error {
		t.Error("started on a schema that refuses it")
		return nil
	})
	var refused *migrations.TooOldError
	if err := r.wait(t, 20*time.Second); !errors.As(err, &refused) {
		t.Fatalf("Run returned %v", err)
	}
}

func TestRunTellsATakenPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := settings(t, goodURL, "nats://127.0.0.1:1")
	s.HealthListen = taken.Addr().String()
	if err := launch(t, s, nil).wait(t, 20*time.Second); err == nil || !strings.Contains(err.Error(), "HEALTH_LISTEN") {
		t.Fatalf("Run returned %v", err)
	}
}

func TestOpenAndClose(t *testing.T) {
	t.Parallel()
	s := settings(t, localtest.Postgres(t), localtest.EmptyNATS(t).URL())
	s.LogLevel = "error"
	a, err := Open(t.Context(), "probe", s)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(t.Context(), "probe", s)
	if err != nil {
		t.Fatal(err)
	}
	if a.Instance == b.Instance || noToken.MatchString(a.Instance) || len(a.Instance) > 64 {
		t.Errorf("instances %q %q", a.Instance, b.Instance)
	}
	if c := a.DB.Config(); c.MaxConnLifetimeJitter == 0 || c.PingTimeout == 0 {
		t.Errorf("the pool is not made for a transaction pooler: %+v", c.ConnConfig.DefaultQueryExecMode)
	}
	for _, p := range []*Process{a, b} {
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Open(ended, "probe", s); !errors.Is(err, context.Canceled) {
		t.Errorf("Open under an ended context: %v", err)
	}
}

// collector is an OTLP receiver that keeps what it got.
type collector struct {
	mu   sync.Mutex
	got  map[string]string // path to bodies
	code int
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got[r.URL.Path] += string(body)
	w.Header().Set("Content-Type", "application/x-protobuf")
	w.WriteHeader(c.code)
}

func TestTelemetryIsFlushedAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{"taken": http.StatusOK, "refused": http.StatusBadRequest} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &collector{got: map[string]string{}, code: code}
			server := httptest.NewServer(c)
			defer server.Close()
			s := settings(t, localtest.Postgres(t), localtest.EmptyNATS(t).URL())
			s.OTLPEndpoint, s.OTLPNamespace = server.URL, "mail-room"
			up := make(chan struct{})
			r := launch(t, s, func(taking, working context.Context, p *Process) error {
				close(up)
				<-taking.Done() // the signal has come: ctx has ended
				ctx, span := p.Tracer.Start(working, "last-span")
				counter, err := p.Meter.Int64Counter("last.count")
				if err != nil {
					return err
				}
				counter.Add(ctx, 1)
				span.End()
				return nil
			})
			<-up
			r.stop()
			if err := r.wait(t, 20*time.Second); err != nil {
				t.Fatal(err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, w := range []string{"last-span", "posthouse-probe", "mail-room", "service.instance.id"} {
				if !strings.Contains(c.got["/v1/traces"], w) {
					t.Errorf("traces lack %q", w)
				}
			}
			if !strings.Contains(c.got["/v1/metrics"], "last.count") {
				t.Error("metrics lack last.count")
			}
			if told := r.out.count(`"at":"collector"`); (code == http.StatusOK) != (told == 0) {
				t.Errorf("trouble with the collector told %d times", told)
			}
		})
	}
}

func TestTraceContextInHeaders(t *testing.T) {
	t.Parallel()
	id, _ := trace.TraceIDFromHex("0af7651916cd43dd8448eb211c80319c")
	span, _ := trace.SpanIDFromHex("b7ad6b7169203331")
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled}))
	h := nats.Header{}
	Inject(ctx, h)
	const want = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if h.Get("traceparent") != want {
		t.Fatalf("header %v", h)
	}
	for _, name := range []string{"traceparent", "Traceparent"} {
		if got := trace.SpanContextFromContext(Extract(t.Context(), nats.Header{name: {want}})); got.TraceID() != id || !got.IsRemote() {
			t.Errorf("%s: %v", name, got)
		}
	}
	for _, bad := range []nats.Header{nil, {}, {"traceparent": nil}, {"traceparent": {"00-zz"}}} {
		if trace.SpanContextFromContext(Extract(t.Context(), bad)).IsValid() {
			t.Errorf("%v is no trace", bad)
		}
	}
	Inject(t.Context(), nil) // nothing to write, nothing to break
}

// healthAddress is where the process under test serves, as its log says.
func healthAddress(t *testing.T, r *running) string {
	t.Helper()
	for line := range strings.Lines(r.out.String()) {
		var l struct{ Health string }
		if json.Unmarshal([]byte(line), &l) == nil && l.Health != "" {
			return "http://" + l.Health
		}
	}
	t.Fatalf("no address in %s", r.out)
	return ""
}

func readyz(t *testing.T, address string) (code int, report Report) {
	t.Helper()
	code = get(t, address+"/readyz", &report)
	return code, report
}

func get(t *testing.T, url string, into any) int {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if into != nil {
		if err := json.NewDecoder(res.Body).Decode(into); err != nil {
			t.Fatal(err)
		}
	}
	return res.StatusCode
}
