package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/clerk"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/pkg/outbox"
)

func TestMain(m *testing.M) {
	code := localtest.Main(m)
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// Tokens of the tests; those of globex are for that tenant alone.
const (
	operator  = "operator-0123456789"
	backend   = "backend-0123456789"
	reader    = "reader-0123456789"
	publisher = "publisher-0123456789"
	globex    = "globex-0123456789"
)

func hashed(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

func tokens() string {
	return "ann:operator=" + hashed(operator) + "; erp:backend=" + hashed(backend) + ";eve:reader=" + hashed(reader) + ";ap:publisher=" + hashed(publisher) +
		";gx:operator,backend,publisher@globex=" + hashed(globex)
}

// site is a gateway on a private database.
type site struct {
	t      *testing.T
	db     *pgxpool.Pool
	desk   *desk
	policy document.Policy
	url    string
	log    *logbook

	mu    sync.Mutex
	rung  []docket.Moved
	told  []outbox.Message
	slots chan struct{}
}

// logbook keeps what the gateway says.
type logbook struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logbook) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}
func (l *logbook) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.Buffer.String() }

func open(t *testing.T, change func(*document.Policy)) *site {
	t.Helper()
	db, err := pgxpool.New(t.Context(), localtest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	s := &site{t: t, db: db, policy: document.DefaultPolicy(), log: &logbook{}, slots: make(chan struct{}, 8)}
	if change != nil {
		change(&s.policy)
	}
	book := ledger.New(db)
	docs, err := docket.Open(t.Context(), db, book, &s.policy)
	if err != nil {
		t.Fatal(err)
	}
	hand := func(b outbox.Batch) { s.mu.Lock(); defer s.mu.Unlock(); s.told = append(s.told, b.Messages...) }
	log := zerolog.New(s.log)
	s.desk = &desk{docs: docs, book: book, lanes: lane.New(db, hand), policy: &s.policy, modes: docket.Duplicates{AS4: docket.Reject, SBDH: docket.Reject},
		clerk: &clerk.Clerk{Docs: docs, Hand: hand, Ready: func(m docket.Moved) { s.mu.Lock(); defer s.mu.Unlock(); s.rung = append(s.rung, m) }}, largest: 64 << 10, log: log}
	api, err := s.desk.handler()
	if err != nil {
		t.Fatal(err)
	}
	keys, err := ParseKeys(tokens())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(nil)
	server.Config = newServer(&door{keys: keys, slots: s.slots, log: log, next: api}, log)
	server.Start()
	t.Cleanup(func() { http.DefaultClient.CloseIdleConnections(); server.Close() })
	s.url = server.URL
	return s
}

// ask makes a request; headers are name, value.
func (s *site) ask(token, method, path string, body []byte, headers ...string) (int, http.Header, []byte) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, bytes.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("X-Token", token)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode >= 400 && kind != "application/problem+json" {
		s.t.Errorf("%s %s: %d is no problem but %s: %s", method, path, resp.StatusCode, kind, answer)
	}
	return resp.StatusCode, resp.Header, answer
}

// must is ask with the status that is wanted.
func (s *site) must(want int, token, method, path string, body string, headers ...string) []byte {
	s.t.Helper()
	status, _, answer := s.ask(token, method, path, []byte(body), headers...)
	if status != want {
		s.t.Fatalf("%s %s %s: %d, want %d: %s", method, path, body, status, want, answer)
	}
	return answer
}

func as[T any](t *testing.T, raw []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

// metadata are the fields of a document, without its bytes.
func metadata(n string, more ...string) string {
	fields := map[string]any{"version": 1, "as4_message_id": "as4-" + n, "sbdh_instance_id": "sbdh-" + n, "sender_id": "iso6523-actorid-upis::9915:sender",
		"receiver_id": "iso6523-actorid-upis::9915:receiver", "document_type_id": "busdox-docid-qns::invoice", "process_id": "cenbii-procid-ubl::p1", "c2_seat_id": "POP000306",
		"received_at": time.Now().Add(-time.Second).UTC().Format(time.RFC3339), "kind": "business"}
	for i := 0; i+1 < len(more); i += 2 {
		fields[more[i]] = more[i+1]
	}
	raw, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// withBody is the JSON form.
func withBody(meta string, body []byte) string {
	raw, err := json.Marshal(body)
	if err != nil {
		panic(err)
	}
	return strings.TrimSuffix(meta, "}") + `,"body":` + string(raw) + "}"
}

// bring has a document received.
func (s *site) bring(tenant, n string, more ...string) delivery.ID {
	s.t.Helper()
	answer := s.must(http.StatusAccepted, publisher, "POST", "/api/inbound/document/"+tenant, withBody(metadata(n, more...), []byte("<invoice n='"+n+"'/>")))
	return as[received](s.t, answer).ID
}

// claim takes everything that is ready.
func (s *site) claim() []docket.Claimed {
	s.t.Helper()
	k := s.desk.docs.Documents()
	w, err := k.Join(s.t.Context(), "test", time.Minute)
	if err != nil {
		s.t.Fatal(err)
	}
	g, err := k.Look(s.t.Context(), claim.Group{}, 100)
	if err != nil {
		s.t.Fatal(err)
	}
	var turns []claim.Turn
	for _, f := range g.Found {
		if !f.Shut {
			turns = append(turns, claim.Turn{Group: f.Group, N: 100})
		}
	}
	if len(turns) == 0 {
		return nil
	}
	got, _, err := k.Claim(s.t.Context(), w, turns)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// forward has all that is ready forwarded, or refused for good.
func (s *site) forward(a document.Attempt) {
	s.t.Helper()
	got := s.claim()
	if len(got) == 0 {
		s.t.Fatal("nothing is ready")
	}
	for _, c := range got {
		if _, err := s.desk.docs.Settle(s.t.Context(), c, &docket.Attempt{Verdict: a.Verdict, Answer: a.Answer}, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
			return f.Attempted(a, &s.policy, now)
		}); err != nil {
			s.t.Fatal(err)
		}
	}
}

var (
	taken = document.Attempt{Verdict: delivery.Accepted, Confirmed: true}
	never = document.Attempt{Verdict: delivery.Refused, NoRetry: true, Answer: delivery.Answer{Category: delivery.Permanent, Code: "HTTP_422"}}
)

func (s *site) count(sql string, args ...any) (n int) {
	s.t.Helper()
	if err := s.db.QueryRow(s.t.Context(), sql, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}
