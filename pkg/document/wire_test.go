package document_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
)

const sum = `9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`

// message is a valid message as a map, changed.
func message(change func(m map[string]any)) []byte {
	m := map[string]any{
		"version": 1, "as4_message_id": "m1@ap.example", "sbdh_instance_id": "sbdh-1", "sender_id": "iso6523-actorid-upis::0088:1", "receiver_id": "iso6523-actorid-upis::0088:2",
		"document_type_id": "busdox-docid-qns::urn:x::Invoice##urn:y::2.1", "process_id": "cenbii-procid-ubl::urn:z", "received_at": "2026-12-01T12:00:00Z", "kind": "business", "body": "PGEvPg==",
	}
	change(m)
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

func set(pairs ...any) func(map[string]any) {
	return func(m map[string]any) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i+1] == nil {
				delete(m, pairs[i].(string))
				continue
			}
			m[pairs[i].(string)] = pairs[i+1]
		}
	}
}

func ref(pairs ...any) func(map[string]any) {
	r := map[string]any{"object": "acme/2026/12/01/x.sbd", "size": 3, "sha256": sum}
	set(pairs...)(r)
	return set("body", nil, "body_ref", r)
}

func TestFaultsOfAMessageNameTheField(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		change func(map[string]any)
		want   string
	}{
		{set(), ""},
		{set("c1_country", "AT", "c2_seat_id", "POP000306", "as4_timestamp", "2026-12-01T11:59:58Z", "mls_to", "iso6523-actorid-upis::0242:000306", "mls_type", "FAILURE_ONLY", "content_type", "application/pdf"), ""},
		{set("kind", "mls", "reference", "sbdh-0", "mls_code", "AP"), ""},
		{set("kind", "mls"), ""}, // without a reference: taken, and dead at once
		{set("kind", "mlr", "reference", "sbdh-0"), ""},
		{set("sbdh_instance_id", "ümläut {x} 1"), ""},
		{ref(), ""},
		{ref("object", nil, "url", "https://ap.example/d/1?sig=a"), ""},
		{set("version", 2), "version"},
		{set("version", nil), "version"},
		{set("version", "1"), "version"},
		{set("sbdh_id", "x"), "sbdh_id"},
		{set("as4_message_id", nil), "as4_message_id"},
		{set("as4_message_id", strings.Repeat("x", 256)), "as4_message_id"},
		{set("as4_message_id", "a\nb"), "as4_message_id"},
		{set("sbdh_instance_id", ""), "sbdh_instance_id"},
		{set("sbdh_instance_id", " x"), "sbdh_instance_id"},
		{set("sbdh_instance_id", "a\x00"), "sbdh_instance_id"},
		{set("sender_id", "0088:1"), "sender_id"},
		{set("sender_id", "::1"), "sender_id"},
		{set("receiver_id", "a::"), "receiver_id"},
		{set("receiver_id", "a::b c"), "receiver_id"},
		{set("receiver_id", "a::"+strings.Repeat("1", 200)), "receiver_id"},
		{set("document_type_id", nil), "document_type_id"},
		{set("process_id", "a::ü"), "process_id"},
		{set("c1_country", "at"), "c1_country"},
		{set("c1_country", "AUT"), "c1_country"},
		{set("c2_seat_id", "a\rb"), "c2_seat_id"},
		{set("content_type", "text"), "content_type"},
		{set("received_at", nil), "received_at"},
		{set("received_at", "yesterday"), "received_at"},
		{set("received_at", "1999-12-01T12:00:00Z"), "received_at"},
		{set("as4_timestamp", "2999-12-01T12:00:00Z"), "as4_timestamp"},
		{set("kind", nil), "kind"},
		{set("kind", "invoice"), "kind"},
		{set("reference", "sbdh-0"), "reference"},
		{set("kind", "mls", "mls_to", "a::b"), "mls_to"},
		{set("mls_to", "nobody"), "mls_to"},
		{set("mls_type", "always_send"), "mls_type"},
		{set("kind", "mlr", "mls_type", "ALWAYS_SEND"), "mls_type"},
		{set("mls_code", "AP"), "mls_code"},
		{set("kind", "mls", "mls_code", "OK"), "mls_code"},
		{set("body", nil), "body"},
		{set("body", ""), "body"},
		{set("body", "%%%"), "body"},
		{set("body", base64.StdEncoding.EncodeToString(make([]byte, document.MaxInlineBytes+1))), "body"},
		{set("body_ref", map[string]any{"object": "x", "size": 1, "sha256": sum}), "body"}, // both
		{ref("size", 0), "body_ref.size"},
		{ref("size", document.MaxDocumentBytes+1), "body_ref.size"},
		{ref("size", 1.5), "size"},
		{ref("sha256", strings.ToUpper(sum)), "body_ref.sha256"},
		{ref("sha256", sum[2:]), "body_ref.sha256"},
		{ref("object", nil), "body_ref"},
		{ref("url", "https://ap.example/x"), "body_ref"}, // both
		{ref("object", "../x"), "body_ref.object"},
		{ref("object", "a//b"), "body_ref.object"},
		{ref("object", "/a"), "body_ref.object"},
		{ref("object", "a/.b"), "body_ref.object"},
		{ref("object", "a b"), "body_ref.object"},
		{ref("object", strings.Repeat("x", 513)), "body_ref.object"},
		{ref("object", nil, "url", "ftp://ap.example/x"), "body_ref.url"},
		{ref("object", nil, "url", "https://u:hunter2@ap.example/x"), "body_ref.url"},
		{ref("object", nil, "url", "https:///x"), "body_ref.url"},
		{ref("object", nil, "url", "https://ap.example/"+strings.Repeat("x", 2048)), "body_ref.url"},
		{ref("hash", "x"), "hash"},
	} {
		_, err := document.DecodeInbound(message(c.change))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("case %d: %v, want %q", i, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("case %d quotes a password: %v", i, err)
		}
	}
	for body, want := range map[string]string{
		"":                                "ends",
		"{":                               "ends",
		"x":                               "not JSON",
		"[]":                              "array",
		string(message(set())) + "{}":     "after",
		strings.Repeat(" ", 7<<20) + "{}": "at most",
	} {
		if _, err := document.DecodeInbound([]byte(body)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", body, err, want)
		}
	}
}

func TestWhatMayBeMissingHasADefault(t *testing.T) {
	t.Parallel()
	in, err := document.DecodeInbound(message(set()))
	if err != nil {
		t.Fatal(err)
	}
	if in.C1Country != "ZZ" || in.AS4At == nil || !in.AS4At.Equal(noon) || string(in.Body) != "<a/>" {
		t.Errorf("%+v", in)
	}
	p := document.DefaultPolicy()
	f := in.Facts(&p)
	f.ID = delivery.NewID()
	if f.State != "" || f.MLSType != document.AlwaysSend || !f.Origin().Equal(noon) {
		t.Errorf("%+v", f)
	}
	if d, err := f.Receive(&p, noon); err != nil || d.To != document.Received {
		t.Errorf("%+v %v", d, err)
	}
}

// golden compares with a file that users' code depends on.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	var b bytes.Buffer
	if err := json.Indent(&b, got, "", "  "); err != nil {
		t.Fatal(err)
	}
	b.WriteByte('\n')
	file := filepath.Join("testdata", name)
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, b.Bytes()) {
		t.Errorf("%s is no longer\n%s\nbut\n%s", name, want, b.Bytes())
	}
}

func TestWireForms(t *testing.T) {
	t.Parallel()
	id, err := delivery.ParseID("0193f0a0-0000-7000-8000-000000000001")
	if err != nil {
		t.Fatal(err)
	}
	at := noon.Add(-2 * time.Second)
	for name, in := range map[string]document.Inbound{
		"inbound.business.json": {Version: 1, AS4MessageID: "m1@ap.example", SBDHInstanceID: "sbdh-1", SenderID: "iso6523-actorid-upis::0088:1", ReceiverID: "iso6523-actorid-upis::0088:2",
			DocTypeID: "busdox-docid-qns::urn:x::Invoice##urn:y::2.1", ProcessID: "cenbii-procid-ubl::urn:z", C1Country: "AT", C2SeatID: "POP000306", ContentType: "application/xml",
			ReceivedAt: noon, AS4At: &at, Kind: document.Business, MLSTo: "iso6523-actorid-upis::0242:000306-MLS", MLSType: document.AlwaysSend, Body: []byte("<a/>")},
		"inbound.mls.json": {Version: 1, AS4MessageID: "m2@ap.example", SBDHInstanceID: "sbdh-2", SenderID: "iso6523-actorid-upis::0242:000306", ReceiverID: "iso6523-actorid-upis::0242:000307",
			DocTypeID: "busdox-docid-qns::urn:x::ApplicationResponse##urn:peppol:edec:mls:1.0::2.1", ProcessID: "cenbii-procid-ubl::urn:peppol:edec:mls", ReceivedAt: noon, Kind: document.KindMLS,
			Reference: "sbdh-0", MLSCode: document.AP, BodyRef: &document.BodyReference{Object: "acme/2026/12/01/x.sbd", Size: 4711, SHA256: sum}},
	} {
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, b)
		if _, err := document.DecodeInbound(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	p := with(api)
	f := the(document.Retry, verdict("passed"), func(f *document.Facts) { f.ID = id })
	forwarded := must(t)(f.Attempted(document.Attempt{Verdict: delivery.Accepted, Confirmed: true, C4Country: "AT"}, p, noon.Add(time.Minute)))
	rejected := must(t)(the(document.Received, func(f *document.Facts) { f.ID = id }).Verified(says, p, noon.Add(time.Minute)))
	for name, c := range map[string]struct {
		f document.Facts
		d document.Decision
	}{"event.forwarded.json": {f, forwarded}, "event.rejected.json": {the(document.Received, func(f *document.Facts) { f.ID = id }), rejected}} {
		e, err := document.NewEvent(c.f, c.d, 3, noon.Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		e.AS4MessageID, e.Attempts = "m1@ap.example", 2
		e.Answer = &delivery.Answer{Code: "HTTP_200"}
		b, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		golden(t, name, b)
		back, err := document.DecodeEvent(b)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := back.Encode(); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s does not come back: %s %v", name, again, err)
		}
	}
	golden(t, "mls.re.json", func() []byte { b, _ := json.Marshal(rejected.Send); return b }())
}

func TestAQuietDecisionHasNoEvent(t *testing.T) {
	t.Parallel()
	f := the(document.Retry)
	d := yes(t)(f.Postponed(noon, with(), noon))
	if _, err := document.NewEvent(f, d, 1, noon); err == nil {
		t.Error("a postponement has an event")
	}
	if _, err := document.NewEvent(f, document.Decision{}, 1, noon); err == nil {
		t.Error("nothing has an event")
	}
}

func FuzzDecodeInbound(f *testing.F) {
	f.Add(message(set()))
	f.Add(message(ref()))
	f.Add(message(ref("object", nil, "url", "https://ap.example/x")))
	f.Add(bytes.Replace(message(set("kind", "mls", "reference", "lone", "mls_code", "RE")), []byte("lone"), []byte(`\ud800`), 1))
	f.Add([]byte(`{"version":1,"body_ref":{"sha256":"zz","size":-1}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		in, err := document.DecodeInbound(body)
		if err != nil {
			if text := err.Error(); len(text) > 2*delivery.MaxText || strings.ContainsAny(text, "\x00\n") {
				t.Errorf("%q", text)
			}
			return
		}
		// What is taken must be storable as PostgreSQL text, and be taken again.
		for _, s := range []string{in.AS4MessageID, in.SBDHInstanceID, in.SenderID, in.ReceiverID, in.Reference, in.C2SeatID, in.MLSTo} {
			if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
				t.Errorf("%q is taken and cannot be stored", s)
			}
		}
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) <= document.MaxInboundBytes {
			if _, err := document.DecodeInbound(b); err != nil {
				t.Errorf("%s is not taken again: %v", b, err)
			}
		}
		p := document.DefaultPolicy()
		facts := in.Facts(&p)
		if d, err := facts.Receive(&p, in.ReceivedAt); err != nil || d.To == "" {
			t.Errorf("%+v %v", d, err)
		}
		if d, ok := facts.After(document.Decision{To: document.Forwarded}).MLSDeadline(&p); ok && d.After(in.ReceivedAt.Add(p.APITimeout)) {
			t.Errorf("the deadline %s is later than reception allows", d)
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	f.Add([]byte(`{"id":"0193f0a0-0000-7000-8000-000000000001","version":2,"mls":{"status":"sent","delivery":"x"},"at":"2026-12-01T12:00:00Z"}`))
	f.Add([]byte(`{"mls":{"delivery":"0193f0a0-0000-7000-8000-000000000001"}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		e, err := document.DecodeEvent(body)
		if err != nil {
			return
		}
		if _, err := e.Encode(); err != nil {
			t.Error(err)
		}
	})
}
