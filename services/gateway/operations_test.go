package gateway

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// Every answer of the backend's call to send an MLS, and the order of the checks.
func TestEachAnswerToAnMLS(t *testing.T) {
	t.Parallel()
	api := func(p *document.Policy) { p.Trigger = document.TriggerAPI }
	s := open(t, api)
	id := s.bring("acme", "1")
	s.bring("acme", "mls", "kind", "mls", "reference", "some")
	s.forward(taken)
	say := func(want int, body string) []byte {
		t.Helper()
		return s.must(want, backend, "POST", "/api/mls/send", body)
	}
	re := `"issues":[{"statusReasonCode":"FD","errorField":"NA","description":"no such department"}]`
	// 400 comes before 404, 404 before 422, 422 before 409.
	for _, body := range []string{``, `[]`, `null`, `{`, `{"sbdhInstanceID":"nobody"}`, `{"sbdhInstanceID":"nobody","responseCode":"XX"}`, `{"sbdhInstanceID":"nobody","responseCode":"RE"}`,
		`{"sbdhInstanceID":"nobody","responseCode":"AP",` + re + `}`, `{"responseCode":"AP"}`, `{"sbdhInstanceID":"sbdh-1","responseCode":"AP","surprise":1}`,
		`{"sbdhInstanceID":"sbdh-1","responseCode":"AP"} {}`, `{"sbdhInstanceID":"sbdh-1","responseCode":"RE","issues":[{"statusReasonCode":"FD"}]}`} {
		say(http.StatusBadRequest, body)
	}
	say(http.StatusNotFound, `{"sbdhInstanceID":"nobody","responseCode":"AP"}`)
	say(http.StatusNotFound, `{"sbdhInstanceID":"a\u0000b","responseCode":"AP"}`)
	say(http.StatusUnprocessableEntity, `{"sbdhInstanceID":"sbdh-mls","responseCode":"AP"}`)
	said := as[said](t, say(http.StatusOK, `{"sbdhInstanceID":"sbdh-1","responseCode":"AP","responseText":"booked"}`))
	if said.Status != document.ReplySent || said.TransactionID != id || said.Delivery == (delivery.ID{}) || said.Message == "" {
		t.Errorf("%+v", said)
	}
	say(http.StatusConflict, `{"sbdhInstanceID":"sbdh-1","responseCode":"RE",`+re+`}`)
	if n := s.count(`SELECT count(*) FROM delivery WHERE channel = 'as4' AND request_id = $1`, "mls-"+id.String()); n != 1 {
		t.Errorf("%d answers to C2, want 1", n)
	}
	// One that only failures interest: recorded, or sent when it is one.
	quiet := open(t, func(p *document.Policy) { api(p); p.MLSType = document.FailureOnly })
	quiet.bring("acme", "1")
	quiet.bring("acme", "2")
	quiet.forward(taken)
	recorded := as[map[string]any](t, quiet.must(http.StatusOK, backend, "POST", "/api/mls/send", `{"sbdhInstanceID":"sbdh-1","responseCode":"AB"}`))
	if recorded["status"] != "recorded" || recorded["delivery"] != nil {
		t.Errorf("%v", recorded)
	}
	quiet.must(http.StatusOK, backend, "POST", "/api/mls/send", `{"sbdhInstanceID":"sbdh-2","responseCode":"RE",`+re+`}`)
	if n := quiet.count(`SELECT count(*) FROM delivery WHERE channel = 'as4'`); n != 1 {
		t.Errorf("%d answers to C2, want the failure alone", n)
	}
	// Turned off: before everything else, even what is not JSON.
	off := open(t, func(p *document.Policy) { p.MLS = false })
	off.must(http.StatusServiceUnavailable, backend, "POST", "/api/mls/send", `{`)
	// A fault of ours.
	quiet.bring("acme", "3")
	if _, err := quiet.db.Exec(t.Context(), `ALTER TABLE outbox RENAME TO lost`); err != nil {
		t.Fatal(err)
	}
	failed := quiet.must(http.StatusInternalServerError, backend, "POST", "/api/mls/send", `{"sbdhInstanceID":"sbdh-3","responseCode":"AP"}`)
	if strings.Contains(string(failed), "outbox") {
		t.Errorf("the fault is told to the caller: %s", failed)
	}
	if !strings.Contains(quiet.log.String(), `relation \"outbox\" does not exist`) {
		t.Errorf("the fault is not in the log: %s", quiet.log)
	}
}

// A rejected document that the backend only got to see is not answered by it.
func TestARejectedDocumentIsAnsweredAlready(t *testing.T) {
	t.Parallel()
	s := open(t, func(p *document.Policy) { p.Verification = true })
	s.bring("acme", "1")
	for _, c := range s.claim() {
		if _, err := s.desk.docs.Settle(t.Context(), c, nil, func(f document.Facts, _ int, now time.Time) (document.Decision, error) {
			return f.Verified([]document.Result{{Verifier: "v", Verdict: document.VerdictRejected}}, &s.policy, now)
		}); err != nil {
			t.Fatal(err)
		}
	}
	s.must(http.StatusConflict, backend, "POST", "/api/mls/send", `{"sbdhInstanceID":"sbdh-1","responseCode":"AP"}`)
	// Asked again by an operator, it has a new way.
	if st := as[document.Status](t, s.must(http.StatusOK, operator, "POST", "/api/ops/inbound/sbdh-1/reverify-and-forward", "")); st.State != document.Received {
		t.Errorf("%+v", st)
	}
}

func TestReplay(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	s.bring("acme", "good")
	s.forward(taken)
	dead := s.bring("acme", "bad")
	s.forward(never)
	for _, name := range []string{"sbdh-good", dead.String()} {
		st := as[document.Status](t, s.must(http.StatusOK, operator, "POST", "/api/ops/inbound/"+name+"/replay?why=their+disk+was+full", "", "X-Audit-User", "ann@example.org"))
		if st.State != document.Retry || st.Gate.Name == "final" {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if n := s.count(`SELECT count(*) FROM audit WHERE action = 'document.replay' AND who = 'ann: ann@example.org' AND why = 'their disk was full'`); n != 2 {
		t.Errorf("%d audit entries, want 2", n)
	}
	s.mu.Lock()
	rung, told := len(s.rung), s.told[len(s.told)-1]
	s.mu.Unlock()
	if rung < 4 || !strings.Contains(told.Subject, ".retry.") {
		t.Errorf("%d bells, the last event on %s", rung, told.Subject)
	}
	if got := s.claim(); len(got) != 2 {
		t.Errorf("%d are in the queue, want 2", len(got))
	}
	s.must(http.StatusConflict, operator, "POST", "/api/ops/inbound/sbdh-good/replay", "") // in work
	s.must(http.StatusNotFound, operator, "POST", "/api/ops/inbound/nobody/replay", "")
	s.must(http.StatusConflict, operator, "POST", "/api/ops/inbound/sbdh-good/reverify-and-forward", "")
	s.must(http.StatusBadRequest, operator, "POST", "/api/ops/inbound/sbdh-good/replay?why=a%0Ab", "")
}

func TestListsAndPayload(t *testing.T) {
	t.Parallel()
	s := open(t, func(p *document.Policy) { p.Trigger = document.TriggerAPI })
	list := func(path string) (names []string) {
		t.Helper()
		for _, l := range as[[]docket.Line](t, s.must(http.StatusOK, reader, "GET", path, "")) {
			names = append(names, strings.TrimPrefix(l.SBDHInstanceID, "sbdh-")+":"+string(l.State))
		}
		return names
	}
	want := func(path string, names ...string) {
		t.Helper()
		if got := list(path); !slices.Equal(got, names) {
			t.Errorf("%s: %v, want %v", path, got, names)
		}
	}
	want("/api/inbound/in-processing")
	s.bring("acme", "1")
	s.bring("globex", "2")
	s.forward(taken)
	s.bring("acme", "3")
	s.forward(never)
	s.bring("acme", "4")
	want("/api/inbound/in-processing", "4:received")
	want("/api/ops/inbound/history", "3:dead", "2:forwarded", "1:forwarded")
	want("/api/ops/inbound/history?limit=1&offset=1", "2:forwarded")
	want("/api/ops/inbound/history?tenant=acme", "3:dead", "1:forwarded")
	want("/api/inbound/missing-c4-country-code", "2:forwarded", "1:forwarded")
	want("/api/mls/missing", "2:forwarded", "1:forwarded")
	want("/api/mls/missing?from=" + time.Now().Add(time.Minute).UTC().Format("2006-01-02T15:04:05Z"))
	s.must(http.StatusUnprocessableEntity, reader, "GET", "/api/ops/inbound/history?limit=501", "")
	s.must(http.StatusBadRequest, reader, "GET", "/api/ops/inbound/history?tenant=%00", "")
	if got := s.claim(); len(got) != 1 {
		t.Fatal(got)
	}
	want("/api/inbound/in-processing", "4:forwarding")

	// The country of C4: told once, the same word may come again.
	s.must(http.StatusBadRequest, backend, "POST", "/api/inbound/report?sbdhInstanceID=sbdh-1&c4CountryCode=at", "")
	s.must(http.StatusBadRequest, backend, "POST", "/api/inbound/report?c4CountryCode=AT", "")
	s.must(http.StatusNotFound, backend, "POST", "/api/inbound/report?sbdhInstanceID=nobody&c4CountryCode=AT", "")
	for range 2 {
		if st := as[document.Status](t, s.must(http.StatusOK, backend, "POST", "/api/inbound/report?sbdhInstanceID=sbdh-1&c4CountryCode=AT", "")); st.C4Country != "AT" || st.Version != 3 {
			t.Errorf("%+v", st)
		}
	}
	s.must(http.StatusBadRequest, backend, "POST", "/api/inbound/report?sbdhInstanceID=sbdh-1&c4CountryCode=DE", "")
	want("/api/inbound/missing-c4-country-code", "2:forwarded")
	s.must(http.StatusOK, backend, "POST", "/api/mls/send", `{"sbdhInstanceID":"sbdh-1","responseCode":"AP"}`)
	want("/api/mls/missing", "2:forwarded")

	status, h, body := s.ask(operator, "GET", "/api/ops/inbound/sbdh-3/payload", nil)
	if status != http.StatusOK || string(body) != "<invoice n='3'/>" || h.Get("Content-Type") != "application/xml" || h.Get("X-Content-SHA256") != hashed(string(body)) ||
		!strings.HasPrefix(h.Get("Content-Disposition"), "attachment") || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %v %s", status, h, body)
	}
	s.must(http.StatusNotFound, operator, "GET", "/api/ops/inbound/nobody/payload", "")
	line := as[timeline](t, s.must(http.StatusOK, reader, "GET", "/api/ops/inbound/sbdh-3/timeline", ""))
	if len(line.Journey) != 2 || len(line.Tried) != 1 {
		t.Errorf("%+v", line)
	}
}

func TestServiceLevel(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	at := func(ago time.Duration) []string {
		when := time.Now().Add(-ago).UTC().Format(time.RFC3339)
		return []string{"received_at", when, "as4_timestamp", when}
	}
	intime := s.bring("acme", "in-time", at(10*time.Minute)...)
	s.bring("acme", "late", at(30*time.Minute)...)
	s.bring("acme", "missing", at(25*time.Minute)...)
	s.bring("acme", "open", at(time.Minute)...)
	s.bring("acme", "before", at(90*time.Minute)...)
	s.bring("acme", "mls", append(at(time.Hour), "kind", "mls", "reference", "r")...)
	s.forward(taken)
	// What will carry an answer is not there yet: its attempts are written here.
	for name, ago := range map[string]string{"sbdh-in-time": "5 minutes", "sbdh-late": "1 minute"} {
		if _, err := s.db.Exec(t.Context(), `INSERT INTO attempt (delivery_id, fence, number, lane, settled_at, verdict, answer)
			SELECT mls_delivery, 1, 1, 1, now() - $2::interval, 'accepted', '{}' FROM document WHERE sbdh_id = $1`, name, ago); err != nil {
			t.Fatal(err)
		}
	}
	from := url.QueryEscape(time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	sla := as[document.SLA](t, s.must(http.StatusOK, reader, "GET", "/api/mls/sla/mls1?entries=true&from="+from, ""))
	if sla.Total != 3 || sla.Within != 1 || sla.Late != 1 || sla.Missing != 1 || sla.Open != 1 || sla.Met || len(sla.Entries) != 4 {
		t.Errorf("%+v (%s)", sla, intime)
	}
	all := as[document.SLA](t, s.must(http.StatusOK, reader, "GET", "/api/mls/sla/mls1", ""))
	if all.Missing != 2 || all.Entries != nil {
		t.Errorf("%+v", all)
	}
	if none := as[document.SLA](t, s.must(http.StatusOK, reader, "GET", "/api/mls/sla/mls1?tenant=nobody", "")); none.Total != 0 || !none.Met {
		t.Errorf("%+v", none)
	}
	s.must(http.StatusBadRequest, reader, "GET", "/api/mls/sla/mls1?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z", "")
}

func TestBreakersAndDeliveries(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	id := s.bring("acme", "1")
	s.forward(taken)
	key := "forwarder"
	if _, err := s.desk.lanes.Force(t.Context(), delivery.LaneCommand{Key: key, For: delivery.Duration(time.Hour), Warrant: delivery.Warrant{By: "t", Why: "t"}}); err != nil {
		t.Fatal(err)
	}
	state := func(path string) map[string]string {
		t.Helper()
		states := map[string]string{}
		for _, l := range as[[]delivery.LaneStatus](t, s.must(http.StatusOK, reader, "GET", path, "")) {
			states[l.Key] = l.Breaker
		}
		return states
	}
	if got := state("/api/ops/circuit-breakers"); got[key] != "open" || got["verifier"] != "closed" {
		t.Errorf("%v", got)
	}
	if l := as[delivery.LaneStatus](t, s.must(http.StatusOK, operator, "POST", "/api/ops/circuit-breakers/"+key+"/reset", "")); l.Breaker != "closed" {
		t.Errorf("%+v", l)
	}
	for _, unknown := range []string{"nobody", "%00", "a%2Fb"} {
		s.must(http.StatusNotFound, operator, "POST", "/api/ops/circuit-breakers/"+unknown+"/reset", "")
	}
	// The answer to C2 is a delivery: by its own id, or by the request's and its tenant.
	st := as[document.Status](t, s.must(http.StatusOK, reader, "GET", "/api/inbound/status/"+id.String(), ""))
	for _, path := range []string{st.MLS.Delivery.String(), "mls-" + id.String() + "?tenant=acme"} {
		d := as[delivery.Status](t, s.must(http.StatusOK, reader, "GET", "/api/outbound/status/"+path, ""))
		if d.ID != st.MLS.Delivery || d.Channel != "as4" {
			t.Errorf("%+v", d)
		}
	}
	if line := as[timeline](t, s.must(http.StatusOK, reader, "GET", "/api/ops/outbound/"+st.MLS.Delivery.String()+"/timeline", "")); line.ID != st.MLS.Delivery || len(line.Journey) == 0 {
		t.Errorf("%+v", line)
	}
	for _, path := range []string{"mls-" + id.String(), "mls-" + id.String() + "?tenant=globex", st.MLS.Delivery.String() + "?tenant=globex", "%00"} {
		s.must(http.StatusNotFound, reader, "GET", "/api/outbound/status/"+path, "")
	}
}

// rights is who may do what, apart from the code that says so.
func rights() map[string]string {
	return map[string]string{
		"GET /api/inbound/status/{sbdh}": "operator backend reader", "GET /api/ops/inbound/{sbdh}/timeline": "operator backend reader", "GET /api/ops/inbound/{sbdh}/payload": "operator backend",
		"GET /api/inbound/in-processing": "operator backend reader", "GET /api/ops/inbound/history": "operator backend reader", "GET /api/inbound/missing-c4-country-code": "operator backend reader",
		"GET /api/mls/missing": "operator backend reader", "GET /api/mls/sla/mls1": "operator backend reader", "POST /api/inbound/document/{tenant}": "publisher",
		"POST /api/ops/inbound/{sbdh}/replay": "operator", "POST /api/ops/inbound/{sbdh}/reverify-and-forward": "operator", "GET /api/ops/circuit-breakers": "operator reader",
		"POST /api/ops/circuit-breakers/{key}/reset": "operator", "POST /api/mls/send": "operator backend", "POST /api/inbound/report": "operator backend",
		"GET /api/outbound/status/{id}": "operator reader", "GET /api/ops/outbound/{id}/timeline": "operator reader",
	}
}

// Every operation is described, and every description is of one that is served; each
// role may do what it is for and nothing else.
func TestDescriptionAndRights(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	raw := s.must(http.StatusOK, reader, "GET", "/openapi.json", "")
	described := as[struct {
		OpenAPI    string
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas, SecuritySchemes map[string]json.RawMessage }
		Security   []map[string][]string
	}](t, raw)
	if !strings.HasPrefix(described.OpenAPI, "3.1") || len(described.Security) != 2 || len(described.Components.SecuritySchemes) != 2 {
		t.Errorf("%s %v", described.OpenAPI, described.Security)
	}
	for _, ref := range strings.Split(string(raw), `"#/components/schemas/`)[1:] {
		if name, _, _ := strings.Cut(ref, `"`); described.Components.Schemas[name] == nil {
			t.Errorf("schema %s is used and not there", name)
		}
	}
	var have []string
	for path, methods := range described.Paths {
		for method, o := range methods {
			route := strings.ToUpper(method) + " " + path
			have = append(have, route)
			op := as[struct {
				OperationID, Summary string
				Roles                []string `json:"x-roles"`
				Responses            map[string]json.RawMessage
			}](t, o)
			slices.SortFunc(op.Roles, func(a, b string) int {
				return strings.Index("operator backend reader publisher", a) - strings.Index("operator backend reader publisher", b)
			})
			if got := strings.Join(op.Roles, " "); got != rights()[route] || op.OperationID == "" || op.Summary == "" || op.Responses["401"] == nil || op.Responses["403"] == nil || op.Responses["500"] == nil {
				t.Errorf("%s: %s %q for %v, want %s", route, op.OperationID, op.Summary, op.Roles, rights()[route])
			}
		}
	}
	slices.Sort(have)
	if want := slices.Sorted(maps.Keys(rights())); !slices.Equal(have, want) {
		t.Fatalf("described: %v\nwant:      %v", have, want)
	}
	for route, roles := range rights() {
		method, path, _ := strings.Cut(route, " ")
		path = strings.NewReplacer("{sbdh}", "nobody", "{key}", "nobody", "{id}", "nobody", "{tenant}", "acme").Replace(path)
		for role, token := range map[string]string{"operator": operator, "backend": backend, "reader": reader, "publisher": publisher, "none": "", "stranger": "stranger"} {
			status, h, _ := s.ask(token, method, path, nil)
			switch allowed := slices.Contains(strings.Fields(roles), role); {
			case token == "" || token == "stranger":
				if status != http.StatusUnauthorized || h.Get("WWW-Authenticate") == "" {
					t.Errorf("%s as %s: %d, want 401", route, role, status)
				}
			case allowed && (status == http.StatusUnauthorized || status == http.StatusForbidden || status >= 500):
				t.Errorf("%s as %s: %d, it is for it", route, role, status)
			case !allowed && status != http.StatusForbidden:
				t.Errorf("%s as %s: %d, want 403", route, role, status)
			}
		}
	}
	for _, path := range []string{"/", "/api/", "/openapi.yaml", "/docs", "/schemas/Said.json", "/api/ops/inbound//replay"} {
		if status, _, _ := s.ask("", "GET", path, nil); status != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d, want 401", path, status)
		}
	}
	s.must(http.StatusNotFound, operator, "GET", "/docs", "")
	// No more in work at once than there are slots.
	for range cap(s.slots) {
		s.slots <- struct{}{}
	}
	if status, h, _ := s.ask(reader, "GET", "/openapi.json", nil); status != http.StatusServiceUnavailable || h.Get("Retry-After") == "" {
		t.Errorf("with all slots taken: %d %v", status, h)
	}
	if log := s.log.String(); strings.Contains(log, reader) || strings.Contains(log, "stranger") || strings.Contains(log, hashed(reader)) {
		t.Error("the log shows a token")
	}
}

// A token for one tenant sees and changes nothing of another's.
func TestTwoTenants(t *testing.T) {
	t.Parallel()
	s := open(t, nil)
	theirs := s.bring("acme", "theirs")
	s.must(http.StatusForbidden, globex, "POST", "/api/inbound/document/acme", withBody(metadata("x"), []byte("x")))
	mine := as[received](t, s.must(http.StatusAccepted, globex, "POST", "/api/inbound/document/globex", withBody(metadata("mine"), []byte("x")))).ID
	s.forward(taken)
	for _, name := range []string{"sbdh-theirs", theirs.String()} {
		s.must(http.StatusNotFound, globex, "GET", "/api/inbound/status/"+name, "")
		s.must(http.StatusNotFound, globex, "GET", "/api/ops/inbound/"+name+"/payload", "")
		s.must(http.StatusNotFound, globex, "POST", "/api/ops/inbound/"+name+"/replay", "")
		s.must(http.StatusNotFound, globex, "POST", "/api/mls/send", fmt.Sprintf(`{"sbdhInstanceID":%q,"responseCode":"AP"}`, name))
		s.must(http.StatusNotFound, globex, "POST", "/api/inbound/report?c4CountryCode=AT&sbdhInstanceID="+name, "")
		s.must(http.StatusForbidden, globex, "GET", "/api/inbound/status/"+name+"?tenant=acme", "")
	}
	s.must(http.StatusNotFound, globex, "GET", "/api/outbound/status/mls-"+theirs.String(), "")
	st := as[document.Status](t, s.must(http.StatusOK, operator, "GET", "/api/inbound/status/"+theirs.String(), ""))
	s.must(http.StatusNotFound, globex, "GET", "/api/outbound/status/"+st.MLS.Delivery.String(), "")
	for _, path := range []string{"/api/ops/inbound/history", "/api/inbound/missing-c4-country-code"} {
		if lines := as[[]docket.Line](t, s.must(http.StatusOK, globex, "GET", path, "")); len(lines) != 1 || lines[0].ID != mine {
			t.Errorf("%s: %+v", path, lines)
		}
		s.must(http.StatusForbidden, globex, "GET", path+"?tenant=acme", "")
	}
	if sla := as[document.SLA](t, s.must(http.StatusOK, globex, "GET", "/api/mls/sla/mls1", "")); sla.Open != 1 {
		t.Errorf("%+v", sla)
	}
	s.must(http.StatusForbidden, globex, "GET", "/api/ops/circuit-breakers", "")
	s.must(http.StatusForbidden, globex, "POST", "/api/ops/circuit-breakers/forwarder/reset", "")
	s.must(http.StatusOK, globex, "POST", "/api/ops/inbound/sbdh-mine/replay", "")
	// One's SBDH id is the other's document id: each finds its own.
	s.must(http.StatusAccepted, globex, "POST", "/api/inbound/document/globex", withBody(metadata("y", "sbdh_instance_id", theirs.String()), []byte("y")))
	if got := as[document.Status](t, s.must(http.StatusOK, globex, "GET", "/api/inbound/status/"+theirs.String(), "")); got.Tenant != "globex" {
		t.Errorf("%+v", got)
	}
	// What another tenant has received under the same ids is no repeat, and is not told.
	again := s.must(http.StatusAccepted, globex, "POST", "/api/inbound/document/globex", withBody(metadata("theirs"), []byte("<invoice n='theirs'/>")))
	if r := as[received](t, again); r.Repeats != "" || r.ID == theirs {
		t.Errorf("another tenant's document is named: %s", again)
	}
}
