package delivery_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/streams"
)

// TestSchemasDescribeTheWireForms holds each schema against the type that reads
// or writes the message: the same fields, and a full example that validates.
func TestSchemasDescribeTheWireForms(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC()
	id := delivery.NewID()
	event := &delivery.Event{ID: id, Version: 2, State: delivery.Retry, Tenant: "acme", Channel: delivery.Mail, RequestID: "r", Class: "otp", At: now, Attempts: 1,
		Cause: "attempt", DueAt: &now, Answer: &delivery.Answer{Category: delivery.Transient, Phase: "rcpt", Code: "451", Enhanced: "4.3.0", Text: "later"},
		Recipients: []delivery.RecipientStatus{{Ordinal: 0, State: delivery.RecipientPending, Code: "451", Text: "later"}}, Custom: json.RawMessage(`{"a":1}`)}
	if _, err := event.Encode(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		schema string
		value  any
	}{
		{"send.mail", &delivery.Request{Version: 1, ID: "r", Class: "bulk", SendAt: &now, ExpiresAt: &now, OrderingKey: "k", Custom: json.RawMessage(`{}`),
			MailRequest: delivery.MailRequest{To: []string{"a@b.example"}, Cc: []string{"c@b.example"}, Bcc: []string{"d@b.example"}, ReplyTo: "e@b.example",
				Subject: "s", Text: "t", HTML: "h", Attachments: []delivery.Attachment{{Name: "n", ContentType: "text/plain", Content: []byte("x")}}}}},
		{"event.delivery", event},
		{"event.alert", &delivery.Alert{Schema: 1, Event: "alert.outbox_age.1", Kind: "alert", Name: "outbox_age", Version: 1, State: delivery.AlertRaised,
			Channel: "_", Tenant: "_", At: now, Value: 61, Threshold: 60, Unit: "seconds", Text: "t"}},
		{"event.lane", &delivery.LaneEvent{Schema: 1, Event: "lane.1.2", Kind: "lane", State: delivery.LaneOpen, Lane: "mail$host:25", Channel: "mail", Tenant: "_", Version: 2,
			At: now, Until: &now, Cause: "421 later", Text: "t", By: "ann", Cap: 4, RateCap: 60}},
		{"dlq", &delivery.Letter{Schema: 1, EventID: "e", Source: "poison", Channel: "mail", Tenant: "acme", ID: &id, RequestID: "r", Code: "c", Reason: "why",
			Summary: json.RawMessage(`{}`), Triage: "open", Remark: "m", ArchivedAt: &now}},
	} {
		t.Run(c.schema, func(t *testing.T) {
			t.Parallel()
			raw := streams.Schema(c.schema)
			document, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			compiler := jsonschema.NewCompiler()
			compiler.AssertFormat()
			if err := compiler.AddResource(c.schema, document); err != nil {
				t.Fatal(err)
			}
			schema, err := compiler.Compile(c.schema)
			if err != nil {
				t.Fatal(err)
			}
			body, err := json.Marshal(c.value)
			if err != nil {
				t.Fatal(err)
			}
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(value); err != nil {
				t.Errorf("a full message does not validate: %v\n%s", err, body)
			}
			value.(map[string]any)["version"] = "one"
			delete(value.(map[string]any), "tenant")
			if schema.Validate(value) == nil {
				t.Error("a broken message validates")
			}
			var have struct {
				Properties map[string]json.RawMessage `json:"properties"`
			}
			if err := json.Unmarshal(raw, &have); err != nil {
				t.Fatal(err)
			}
			want := fields(reflect.TypeOf(c.value).Elem())
			slices.Sort(want)
			if got := slices.Sorted(maps.Keys(have.Properties)); !slices.Equal(got, want) {
				t.Errorf("the schema has %v\nthe type has %v", got, want)
			}
		})
	}
}

// fields lists the JSON names of a struct, embedded ones included.
func fields(typ reflect.Type) (names []string) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		if f.Anonymous {
			names = append(names, fields(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		names = append(names, name)
	}
	return names
}
