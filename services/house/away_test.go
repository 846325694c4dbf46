package house_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/smtpsink"
	"github.com/posthouse-io/posthouse/services/house/housetest"
	"github.com/posthouse-io/posthouse/streams"
)

// outage is how long each server is away.
const outage = 20 * time.Second

// PostgreSQL goes away for 20 seconds and comes back, then NATS does, while
// requests keep coming. No service is restarted; each says that it is not ready
// and then that it is; nothing is lost, and nothing arrives twice but beside an
// unknown attempt.
func TestServersGoAwayAndComeBack(t *testing.T) {
	t.Parallel()
	database, bus := localtest.Cluster(t), localtest.NATSServer(t)
	s := housetest.New(t, housetest.Options{
		DatabaseURL: database.URL(localtest.Database), NATSURL: bus.URL(),
		Sink: smtpsink.Options{Delay: func() time.Duration { return 30 * time.Millisecond }},
		Env:  map[string]string{"HEALTH_LISTEN": "127.0.0.1:0"},
	})
	sender, watchdog, deadLetter := s.StartAll()
	services := map[string]*housetest.Service{housetest.Sender: sender, housetest.Watchdog: watchdog, housetest.DeadLetter: deadLetter}
	for name, v := range services {
		await(t, name, v, "ready")
	}
	load := startLoad(t, s)
	load.await(t, 100)

	if err := database.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	back := time.After(outage)
	for name, v := range services {
		await(t, name, v, "failing")
	}
	<-back
	if err := database.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, v := range services {
		await(t, name, v, "ready")
	}
	load.await(t, 100)

	if err := bus.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	back = time.After(outage)
	for name, v := range services {
		await(t, name, v, "failing")
	}
	<-back
	if err := bus.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, v := range services {
		await(t, name, v, "ready")
	}
	load.await(t, 100)

	published := load.stop()
	s.Settled(len(published), time.Minute)
	audit := s.Audit()
	audit.Check(t)
	housetest.Report(t, audit.Lost(published))
	checkRefused(t, s, audit)
	for name, v := range services {
		select {
		case <-v.Done():
			t.Errorf("%s has ended", name)
		default:
		}
	}
}

// checkRefused reports deliveries that are not as their recipient wants it, and
// refused ones without exactly one letter in archive and stream.
func checkRefused(t *testing.T, s *housetest.Site, audit *housetest.Audit) {
	t.Helper()
	var faults []string
	refused := 0
	for _, c := range audit.Accounts {
		want := delivery.Sent
		if c.Tenant == "wrong" {
			want = delivery.Failed
			refused++
		}
		if c.State != want {
			faults = append(faults, fmt.Sprintf("%s of %s ended in %s, want %s", c.ID, c.Tenant, c.State, want))
		}
	}
	if refused == 0 {
		faults = append(faults, "none was refused: the test proves too little")
	}
	localtest.Eventually(t, 30*time.Second, func() error {
		archived, err := s.Count(`SELECT count(*) FROM dead_letter`)
		if err == nil && archived != refused {
			err = fmt.Errorf("%d letters are archived, want %d", archived, refused)
		}
		return err
	})
	localtest.Eventually(t, 30*time.Second, func() error {
		if told := len(s.Stream(streams.DeadLetter)); told != refused {
			return fmt.Errorf("%d letters are on the stream, want %d", told, refused)
		}
		return nil
	})
	housetest.Report(t, faults)
}

// await waits until /readyz of a service says so, with the fitting status code.
func await(t *testing.T, name string, v *housetest.Service, status string) {
	t.Helper()
	localtest.Eventually(t, 30*time.Second, func() error {
		line := v.Log.Line("starting")
		if line == nil {
			return fmt.Errorf("%s has not said where its health is", name)
		}
		client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		answer, err := client.Get(fmt.Sprintf("http://%s/readyz", line["health"]))
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		var report struct{ Status string }
		if err := json.NewDecoder(answer.Body).Decode(&report); err != nil {
			return err
		}
		if report.Status != status || (answer.StatusCode == http.StatusOK) != (status == "ready") {
			return fmt.Errorf("%s is %q (HTTP %d), want %q", name, report.Status, answer.StatusCode, status)
		}
		return nil
	})
}

// load is a client that publishes steadily and repeats what is not acknowledged,
// as README asks of clients.
type load struct {
	site *housetest.Site
	end  context.CancelFunc
	done sync.WaitGroup

	mu    sync.Mutex
	acked []*nats.Msg
}

func startLoad(t *testing.T, s *housetest.Site) *load {
	ctx, cancel := context.WithCancel(context.Background())
	l := &load{site: s, end: cancel}
	l.done.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			m := housetest.Mail("acme", fmt.Sprintf("r-%05d", i), fmt.Sprintf("to-%05d@example.org", i))
			if i%25 == 0 {
				m = housetest.Mail("wrong", fmt.Sprintf("r-%05d", i), fmt.Sprintf("refuse+%05d@example.org", i))
			}
			if !insist(s, m, tick.C) {
				return
			}
			l.mu.Lock()
			l.acked = append(l.acked, m)
			l.mu.Unlock()
		}
	})
	t.Cleanup(func() { l.stop() })
	return l
}

// insist publishes until it is acknowledged: a message whose answer was lost may
// be taken all the same, so the load does not end between two tries. False: for
// a minute nobody has answered.
func insist(s *housetest.Site, m *nats.Msg, again <-chan time.Time) bool {
	for began := time.Now(); time.Since(began) < time.Minute; <-again {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_, err := s.JS.PublishMsg(ctx, m)
		cancel()
		if err == nil {
			return true
		}
	}
	return false
}

func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// await waits for n more acknowledged requests, and for as many more mails.
func (l *load) await(t *testing.T, n int) {
	t.Helper()
	acked, arrived := l.count()+n, l.site.Sink.Count()+n
	localtest.Eventually(t, 30*time.Second, func() error {
		if l.count() < acked || l.site.Sink.Count() < arrived {
			return errors.New("the load does not go on")
		}
		return nil
	})
}

// stop ends the load and gives what was acknowledged.
func (l *load) stop() []*nats.Msg {
	l.end()
	l.done.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}
