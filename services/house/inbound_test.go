package house_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/verify/verifytest"
	"github.com/posthouse-io/posthouse/services/house/housetest"
	"github.com/posthouse-io/posthouse/streams"
)

// backend is a scripted receiver backend: the body of a document says how it
// answers, such as <fail n="2"/>.
type backend struct {
	*httptest.Server
	mu    sync.Mutex
	tries map[string]int // by idempotency key
	taken map[string]int // documents that it has answered with success, by body
	keys  map[string]string
}

func newBackend(t *testing.T) *backend {
	b := &backend{tries: map[string]int{}, taken: map[string]int{}, keys: map[string]string{}}
	b.Server = httptest.NewServer(http.HandlerFunc(b.serve))
	t.Cleanup(b.Close)
	return b
}

func (b *backend) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	text, key := string(body), r.Header.Get("Idempotency-Key")
	b.tries[key]++
	if first, known := b.keys[text]; known && first != key {
		http.Error(w, "one document under two keys", http.StatusTeapot)
		return
	}
	b.keys[text] = key
	answer := func(status int, format string, args ...any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, format, args...)
	}
	switch {
	case strings.Contains(text, "<never/>"):
		answer(http.StatusInternalServerError, `{}`)
	case strings.Contains(text, "<fails-twice/>") && b.tries[key] <= 2:
		answer(http.StatusServiceUnavailable, `{}`)
	case strings.Contains(text, "<throttled/>") && b.tries[key] == 1:
		w.Header().Set("Retry-After", "1")
		answer(http.StatusTooManyRequests, `{}`)
	case strings.Contains(text, "<unwanted/>"):
		answer(http.StatusOK, `{"retry":"none","errorMessage":"we do not want this"}`)
	case strings.Contains(text, "<wrong/>"):
		answer(http.StatusUnprocessableEntity, `{}`)
	default:
		b.taken[text]++
		answer(http.StatusOK, `{"countryCodeC4":"AT"}`)
	}
}

func inbound(n, body string) *nats.Msg {
	at := time.Now().UTC()
	in := document.Inbound{Version: 1, AS4MessageID: "as4-" + n, SBDHInstanceID: "sbdh-" + n, SenderID: "iso6523-actorid-upis::9915:sender", ReceiverID: "iso6523-actorid-upis::9915:receiver",
		DocTypeID: "busdox-docid-qns::invoice", ProcessID: "cenbii-procid-ubl::p1", C1Country: "AT", C2SeatID: "POP000306", ReceivedAt: at, AS4At: &at, Kind: document.Business,
		Body: []byte("<invoice n='" + n + "'>" + body + "</invoice>")}
	payload, err := json.Marshal(in)
	if err != nil {
		panic(err)
	}
	return housetest.Raw(streams.Inbound("acme"), payload)
}

func receiving(url string) map[string]string {
	return map[string]string{"FORWARDING_MODE": "http_post_sync", "FORWARDING_HTTP_ENDPOINT": url, "FORWARDING_HTTP_ALLOW_PRIVATE": "true",
		"RETRY_FORWARDING_INITIAL_BACKOFF": "50ms", "RETRY_SCHEDULER_INTERVAL": "50ms", "CIRCUIT_BREAKER_OPEN_DURATION": "200ms", "WATCHDOG_SWEEP": "500ms"}
}

// documents waits until no document is in the queue and nothing is to be published.
func documentsSettle(t *testing.T, s *housetest.Site, n int) {
	t.Helper()
	localtest.Eventually(t, time.Minute, func() error {
		have, e1 := s.Count(`SELECT count(*) FROM document`)
		left, e2 := s.Count(`SELECT (SELECT count(*) FROM queue WHERE kind <> 'delivery') + (SELECT count(*) FROM outbox)`)
		if err := errors.Join(e1, e2); err != nil || have < n || left > 0 {
			return fmt.Errorf("%d of %d documents, %d in work or to be told (%v)", have, n, left, err)
		}
		return nil
	})
}

// Every way in which a backend may answer, from the bus to the answer to C2.
func TestDocumentsFromTheBusToTheBackend(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	s := housetest.New(t, housetest.Options{Env: receiving(b.URL)})
	s.Start(housetest.Forwarder, nil)
	s.Start(housetest.Watchdog, nil)
	s.Start(housetest.DeadLetter, nil)
	want := map[string]struct {
		body  string
		state document.State
		mls   document.Code
		tries int
	}{
		"fine":      {"", document.Forwarded, document.AP, 1},
		"later":     {"<fails-twice/>", document.Forwarded, document.AP, 3},
		"throttled": {"<throttled/>", document.Forwarded, document.AP, 2},
		"unwanted":  {"<unwanted/>", document.Dead, document.AB, 1},
		"wrong":     {"<wrong/>", document.Dead, document.AB, 1},
		"never":     {"<never/>", document.Dead, document.AB, 3},
	}
	for n, c := range want {
		m := inbound(n, c.body)
		s.Publish(m, m, inbound(n, c.body)) // C2 and the bus may repeat themselves
	}
	s.Publish(housetest.Raw(streams.Inbound("acme"), []byte(`{"version":1,"surprise":true}`)))
	documentsSettle(t, s, len(want))
	for n, c := range want {
		var state, mls, channel string
		var attempts, versions int
		err := s.DB.QueryRow(t.Context(), `SELECT d.state, d.mls_code, d.attempts, d.version, a.channel FROM document d JOIN delivery a ON a.id = d.mls_delivery WHERE d.sbdh_id = $1`,
			"sbdh-"+n).Scan(&state, &mls, &attempts, &versions, &channel)
		if err != nil || state != string(c.state) || mls != string(c.mls) || attempts != c.tries || channel != "as4" {
			t.Errorf("%s: %s, %s after %d attempts, want %s, %s after %d (%v)", n, state, mls, attempts, c.state, c.mls, c.tries, err)
		}
	}
	for body, n := range b.taken {
		if n != 1 {
			t.Errorf("%s was taken %d times", body, n)
		}
	}
	letters := map[string]int{"forward_exhausted": 3, "poison": 1}
	localtest.Eventually(t, 20*time.Second, func() error {
		for source, n := range letters {
			if have, err := s.Count(`SELECT count(*) FROM dead_letter WHERE source = $1`, source); err != nil || have != n {
				return fmt.Errorf("%d letters of %s, want %d (%v)", have, source, n, err)
			}
		}
		return nil
	})
	// The stream says what the book says.
	told := 0
	for _, m := range s.Stream("POSTHOUSE_EVENTS") {
		if e, err := streams.ParseEvent(m.Subject); err == nil && e.Kind == streams.KindDocument {
			told++
		}
	}
	if booked, err := s.Count(`SELECT count(*) FROM event WHERE kind = 'document'`); err != nil || booked != told {
		t.Errorf("%d events of documents are booked, %d published (%v)", booked, told, err)
	}
}

// A verifier that is away defers, one that says no rejects, one that comes back lets
// go on; C2 is answered once.
func TestVerificationDeferredAndBack(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	v, err := verifytest.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	v.Always(verifytest.Fail(http.StatusServiceUnavailable))
	env := receiving(b.URL)
	for name, value := range map[string]string{"VERIFICATION_INBOUND_ENABLED": "true", "VERIFICATION_VERIFIER_FAIL_MODE": "deferred", "VERIFICATION_DEFERRED_RETRY_INTERVAL": "1s",
		"VERIFICATION_VERIFIERS": "v=" + v.URL, "VERIFICATION_ALLOW_PRIVATE": "true", "CIRCUIT_BREAKER_FAILURE_THRESHOLD": "3"} {
		env[name] = value
	}
	s := housetest.New(t, housetest.Options{Env: env})
	s.Start(housetest.Forwarder, nil)
	s.Start(housetest.Verifier, nil)
	s.Start(housetest.Watchdog, nil)
	const n = 8
	for i := range n {
		s.Publish(inbound(fmt.Sprint(i), ""))
	}
	localtest.Eventually(t, 30*time.Second, func() error {
		deferred, err := s.Count(`SELECT count(*) FROM document WHERE state = 'deferred'`)
		if err == nil && deferred < n {
			err = fmt.Errorf("%d of %d deferred", deferred, n)
		}
		return err
	})
	localtest.Eventually(t, 30*time.Second, func() error { // one alarm for the verifier, not one for each document
		raised, err := s.Count(`SELECT count(*) FROM alarm WHERE raised AND name LIKE 'verifier$%'`)
		if err == nil && raised != 1 {
			err = fmt.Errorf("%d alarms", raised)
		}
		return err
	})
	v.Always(verifytest.Pass())
	documentsSettle(t, s, n)
	forwarded, err := s.Count(`SELECT count(*) FROM document WHERE state = 'forwarded' AND verdict = 'passed' AND attempts = 1 AND mls_code = 'AP'`)
	if err != nil || forwarded != n {
		t.Errorf("%d of %d were forwarded at the first attempt once the verifier was back (%v)", forwarded, n, err)
	}
	v.Always(verifytest.Reject(verifytest.Broken()))
	s.Publish(inbound("bad", ""))
	documentsSettle(t, s, n+1)
	rejected, err := s.Count(`SELECT count(*) FROM document WHERE sbdh_id = 'sbdh-bad' AND state = 'rejected' AND mls_code = 'RE' AND attempts = 0`)
	if err != nil || rejected != 1 {
		t.Errorf("%d rejected (%v)", rejected, err)
	}
	if answers, err := s.Count(`SELECT count(*) FROM delivery WHERE channel = 'as4'`); err != nil || answers != n+1 {
		t.Errorf("%d answers to %d documents (%v)", answers, n+1, err)
	}
}

// With trigger api the backend answers C2; for one that stays silent the watchdog
// does, at its time, which runs from the reception.
func TestASilentBackendIsAnsweredFor(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	env := receiving(b.URL)
	env["MLS_SENDING_TRIGGER"], env["MLS_SENDING_API_TIMEOUT"] = "api", "3s"
	s := housetest.New(t, housetest.Options{Env: env})
	s.Start(housetest.Forwarder, nil)
	s.Start(housetest.Watchdog, nil)
	s.Publish(inbound("silent", ""), inbound("spoken", ""))
	documentsSettle(t, s, 2)
	reply, err := s.NATS.Request(streams.Ops("forwarder", "mls-send"), []byte(`{"id":"sbdh-spoken","code":"AP","text":"booked"}`), 5*time.Second)
	if err != nil || !strings.Contains(string(reply.Data), `"status":"sent"`) {
		t.Fatalf("%s %v", reply.Data, err)
	}
	for code, request := range map[string]string{"400": `{"id":"sbdh-spoken","code":"RE"}`, "404": `{"id":"sbdh-nobody","code":"AP"}`, "409": `{"id":"sbdh-spoken","code":"AB"}`} {
		reply, err := s.NATS.Request(streams.Ops("forwarder", "mls-send"), []byte(request), 5*time.Second)
		if err != nil || reply.Header.Get("Nats-Service-Error-Code") != code {
			t.Errorf("%s: %s %v, want %s", request, reply.Header.Get("Nats-Service-Error-Code"), err, code)
		}
	}
	localtest.Eventually(t, 40*time.Second, func() error {
		n, err := s.Count(`SELECT count(*) FROM document WHERE sbdh_id = 'sbdh-silent' AND mls_code = 'AB' AND mls_status = 'claimed'`)
		if err == nil && n == 0 {
			err = errors.New("C2 is not answered")
		}
		return err
	})
	late, err := s.Count(`SELECT count(*) FROM event e JOIN document d ON d.id = e.aggregate WHERE d.sbdh_id = 'sbdh-silent' AND e.version = 3
		AND e.at NOT BETWEEN d.as4_at + interval '3 seconds' AND d.as4_at + interval '25 seconds'`)
	if err != nil || late != 0 {
		t.Errorf("the answer was not given at its time (%v)", err)
	}
	spoken, err := s.Count(`SELECT count(*) FROM document WHERE sbdh_id = 'sbdh-spoken' AND mls_code = 'AP'`)
	if err != nil || spoken != 1 {
		t.Errorf("the backend's own word was overwritten (%v)", err)
	}
}

// Real forwarders are killed again and again: every document is forwarded, the backend
// sees one idempotency key for each, and C2 is answered once.
func TestForwardersAreKilled(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	env := receiving(b.URL)
	env["SENDER_LEASE"] = "2s"
	s := housetest.New(t, housetest.Options{Env: env})
	s.Start(housetest.Watchdog, nil)
	s.Start(housetest.Watchdog, nil)
	running := []*housetest.Program{s.Exec(housetest.Forwarder, nil), s.Exec(housetest.Forwarder, nil)}
	const n = 300
	for i := range n {
		s.Publish(inbound(fmt.Sprint(i), ""))
		if i%75 == 40 {
			running[i%2].Kill()
			running[i%2] = s.Exec(housetest.Forwarder, nil)
		}
	}
	documentsSettle(t, s, n)
	odd, err := s.Count(`SELECT count(*) FROM document WHERE state <> 'forwarded' OR mls_code <> 'AP' OR mls_delivery IS NULL`)
	if err != nil || odd != 0 {
		t.Errorf("%d documents are not as they should be (%v)", odd, err)
	}
	if answers, err := s.Count(`SELECT count(*) FROM delivery WHERE channel = 'as4'`); err != nil || answers != n {
		t.Errorf("%d answers to %d documents (%v)", answers, n, err)
	}
	twice := 0
	b.mu.Lock()
	if len(b.taken) != n {
		t.Errorf("the backend has %d of %d documents", len(b.taken), n)
	}
	for _, times := range b.taken {
		twice += times - 1
	}
	b.mu.Unlock()
	unknown, err := s.Count(`SELECT count(*) FROM attempt WHERE verdict = $1`, delivery.Unknown.String())
	if err != nil || twice > unknown {
		t.Errorf("%d arrived twice, only %d attempts are recorded as unknown (%v)", twice, unknown, err)
	}
}

// A forwarder is stopped while the backend works on its documents, for longer than its
// lease; another one takes them over. When it comes back, the answers that waited for it
// are kept as evidence and move nothing: the backend sees one idempotency key for each
// document, and C2 is answered once.
func TestStalledForwarderChangesNothing(t *testing.T) {
	t.Parallel()
	const n = 20
	b := newBackend(t)
	var mu sync.Mutex
	came := map[string]int{} // by idempotency key
	gates := []chan struct{}{make(chan struct{}), make(chan struct{})}
	letIn := []func(){sync.OnceFunc(func() { close(gates[0]) }), sync.OnceFunc(func() { close(gates[1]) })}
	gated := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		came[r.Header.Get("Idempotency-Key")]++
		try := came[r.Header.Get("Idempotency-Key")]
		mu.Unlock()
		<-gates[min(try, len(gates))-1]
		b.serve(w, r)
	}))
	t.Cleanup(gated.Close)
	t.Cleanup(letIn[1])
	t.Cleanup(letIn[0])
	env := receiving(gated.URL)
	env["SENDER_LEASE"], env["FORWARDING_CONCURRENCY"] = "2s", fmt.Sprint(n)
	s := housetest.New(t, housetest.Options{Env: env})
	s.Start(housetest.Watchdog, nil)
	stalled := s.Exec(housetest.Forwarder, nil)
	for i := range n {
		s.Publish(inbound(fmt.Sprint(i), ""))
	}
	arrived := func(times int) {
		t.Helper()
		localtest.Eventually(t, time.Minute, func() error {
			mu.Lock()
			defer mu.Unlock()
			have := 0
			for _, c := range came {
				if c == times {
					have++
				}
			}
			if have != n || len(came) != n {
				return fmt.Errorf("%d of %d documents are before the backend for the %d. time, under %d keys", have, n, times, len(came))
			}
			return nil
		})
	}
	counts := func(what string, want int, sql string) {
		t.Helper()
		if have, err := s.Count(sql); err != nil || have != want {
			t.Errorf("%s: %d, want %d (%v)", what, have, want, err)
		}
	}
	arrived(1)
	stalled.Signal(syscall.SIGSTOP)
	s.Start(housetest.Forwarder, nil)
	arrived(2)
	letIn[0]() // the answers to the stopped one wait in its sockets
	localtest.Eventually(t, 20*time.Second, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.taken) != n {
			return fmt.Errorf("the backend has answered %d of %d", len(b.taken), n)
		}
		return nil
	})
	const still = `SELECT count(*) FROM document d JOIN queue q ON q.id = d.id WHERE d.state = 'retry' AND d.attempts = 1 AND d.mls_delivery IS NULL AND q.state = 'leased' AND q.fence = 2`
	counts("in work with the other", n, still)
	stalled.Signal(syscall.SIGCONT)
	localtest.Eventually(t, 40*time.Second, func() error {
		if late, err := s.Count(`SELECT count(*) FROM attempt WHERE verdict = 'late'`); err != nil || late != n {
			return fmt.Errorf("%d of %d late results are kept (%v)", late, n, err)
		}
		return nil
	})
	counts("in work with the other, after the first has come back", n, still)
	letIn[1]()
	documentsSettle(t, s, n)
	counts("forwarded at the second attempt", n, `SELECT count(*) FROM document WHERE state = 'forwarded' AND mls_code = 'AP' AND attempts = 2`)
	counts("answers to C2", n, `SELECT count(*) FROM delivery WHERE channel = 'as4'`)
	counts("attempts without a known outcome", n, `SELECT count(*) FROM attempt WHERE verdict = 'unknown'`)
	b.mu.Lock()
	defer b.mu.Unlock()
	for body, times := range b.taken {
		if times != 2 {
			t.Errorf("%s was taken %d times, want 2: both under one key", body, times)
		}
	}
}

// Bodies that lie elsewhere and can not be had do not hold up documents that come
// whole, and end as dead letters; a slow one is taken all the same.
func TestBodiesThatCanNotBeFetched(t *testing.T) {
	t.Parallel()
	b := newBackend(t)
	env := receiving(b.URL)
	env["INBOUND_FETCH_ALLOW_PRIVATE"], env["INBOUND_FETCH_MAX_DURATION"] = "true", "8s"
	s := housetest.New(t, housetest.Options{Env: env})
	s.Start(housetest.Forwarder, nil)
	body := []byte("<invoice n='slow'/>")
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/slow" {
			http.Error(w, "not now", http.StatusServiceUnavailable)
			return
		}
		for i := range body { // some seconds in all
			_, _ = w.Write(body[i : i+1])
			w.(http.Flusher).Flush()
			time.Sleep(100 * time.Millisecond)
		}
	}))
	t.Cleanup(store.Close)
	elsewhere := func(n, path string) *nats.Msg {
		m := inbound(n, "")
		var in document.Inbound
		if err := json.Unmarshal(m.Data, &in); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(body)
		in.Body, in.BodyRef = nil, &document.BodyReference{URL: store.URL + path, Size: int64(len(body)), SHA256: hex.EncodeToString(sum[:])}
		var err error
		if m.Data, err = json.Marshal(in); err != nil {
			t.Fatal(err)
		}
		return m
	}
	const away = 300
	for i := range away {
		s.Publish(elsewhere(fmt.Sprint("away-", i), "/away"))
	}
	s.Publish(elsewhere("slow", "/slow"), inbound("whole", ""))
	localtest.Eventually(t, 30*time.Second, func() error {
		if n, err := s.Count(`SELECT count(*) FROM document WHERE sbdh_id = 'sbdh-whole' AND state = 'forwarded'`); err != nil || n != 1 {
			return fmt.Errorf("the document that came whole waits (%v)", err)
		}
		return nil
	})
	localtest.Eventually(t, time.Minute, func() error {
		if n, err := s.Count(`SELECT count(*) FROM document WHERE sbdh_id = 'sbdh-slow' AND state = 'forwarded'`); err != nil || n != 1 {
			return fmt.Errorf("the slow one is not there (%v)", err)
		}
		if n, err := s.Count(`SELECT count(*) FROM dead_letter WHERE source = 'poison' AND reason LIKE 'its body could not be fetched%'`); err != nil || n != away {
			return fmt.Errorf("%d of %d letters (%v)", n, away, err)
		}
		return nil
	})
}
