package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/streams"
)

// A document's whole life by the command line: it is refused, replayed, its country
// is told, and C2 is answered in the backend's place.
func TestAnOperatorMindsDocuments(t *testing.T) {
	t.Parallel()
	var takes atomic.Bool
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if !takes.Load() {
			w.WriteHeader(http.StatusUnprocessableEntity)
		}
		_, _ = w.Write([]byte(`{}`))
	}))
	t.Cleanup(backend.Close)
	o := open(t, map[string]string{"FORWARDING_MODE": "http_post_sync", "FORWARDING_HTTP_ENDPOINT": backend.URL, "FORWARDING_HTTP_ALLOW_PRIVATE": "true", "MLS_SENDING_TRIGGER": "api",
		"MLS_SENDING_API_TIMEOUT": "20m"})
	nc, err := nats.Connect(o.nats)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	bring := func(n string) {
		t.Helper()
		now := time.Now().UTC()
		body, err := json.Marshal(document.Inbound{Version: 1, AS4MessageID: "as4-" + n, SBDHInstanceID: "sbdh-" + n, SenderID: "iso6523-actorid-upis::9915:s", ReceiverID: "iso6523-actorid-upis::9915:r",
			DocTypeID: "a::b", ProcessID: "a::c", C2SeatID: "POP000306", ReceivedAt: now, Kind: document.Business, Body: []byte("<invoice>" + n + "</invoice>")})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := js.Publish(t.Context(), streams.Inbound("acme"), body); err != nil {
			t.Fatal(err)
		}
	}
	who := []string{"--by", "ann", "--why", "they have mended it"}
	bring("1")
	has(t, o.until("dead", "document", "status", "sbdh-1"), "business of acme", "sbdh-1", "attempt 1", "refused", "MLS", "AB", "gate", "final")
	has(t, o.say(1, "document", "status", "nobody"), "no such document")
	has(t, o.say(1, "document", "status", "sbdh-1", "--tenant", "globex"), "no such document")
	has(t, o.say(1, "document", "replay", "sbdh-1", "--by", "ann"), "why is empty")
	takes.Store(true)
	has(t, o.say(0, append([]string{"document", "replay", "sbdh-1"}, who...)...), "retry")
	var s document.Status
	o.until("forwarded", "document", "status", "sbdh-1")
	if o.decode(&s, "document", "status", "sbdh-1", "-t", "acme"); s.State != document.Forwarded || s.Attempts != 2 || s.MLS.Code != document.AB {
		t.Errorf("%+v", s)
	}
	has(t, o.say(0, "audit"), "document.replay", "they have mended it", s.ID.String())
	has(t, o.say(1, append([]string{"document", "reverify", s.ID.String()}, who...)...), "does not allow")
	o.say(1, "document", "c4", "sbdh-1", "austria")
	has(t, o.say(0, "document", "c4", "sbdh-1", "AT"), "AT")
	has(t, o.say(1, "document", "mls", "sbdh-1", "--code", "AP"), "409")

	bring("2")
	has(t, o.until("forwarded", "document", "status", "sbdh-2"), "waiting")
	has(t, o.say(2, "document", "mls", "sbdh-2", "--code", "XX"), "--code")
	has(t, o.say(1, "document", "mls", "sbdh-2", "--code", "RE", "--issue", "FD"), "code|field|text")
	has(t, o.say(1, "document", "mls", "sbdh-2", "--code", "RE"), "400")
	said := o.say(0, "document", "mls", "sbdh-2", "--code", "RE", "--text", "no", "--issue", "FD|/a:b|no such department, sorry")
	has(t, said, "posthouse status ")
	_, id, _ := strings.Cut(said, "posthouse status ")
	has(t, o.say(0, "status", strings.Trim(id, "`.\n ")), "mls-", "channel", "as4")
	has(t, o.say(0, "document", "status", "sbdh-2"), "RE, claimed, delivery ")
}
