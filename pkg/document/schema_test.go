package document_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/streams"
)

func compiled(t *testing.T, name string) *jsonschema.Schema {
	t.Helper()
	raw, err := jsonschema.UnmarshalJSON(bytes.NewReader(streams.Schema(name)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource(name, raw); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestSchemasDescribeTheWireForms holds each schema against the type that reads or
// writes the message: the same fields at every depth, and the golden files validate.
func TestSchemasDescribeTheWireForms(t *testing.T) {
	t.Parallel()
	for name, typ := range map[string]reflect.Type{"inbound.document": reflect.TypeFor[document.Inbound](), "event.document": reflect.TypeFor[document.Event]()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var raw schemaObject
			if err := json.Unmarshal(streams.Schema(name), &raw); err != nil {
				t.Fatal(err)
			}
			same(t, name, raw, typ)
			schema := compiled(t, name)
			prefix, _, _ := strings.Cut(name, ".")
			files, err := filepath.Glob("testdata/" + prefix + ".*.json")
			if err != nil || len(files) < 2 {
				t.Fatal(files, err)
			}
			for _, file := range files {
				body, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				if err := schema.Validate(value); err != nil {
					t.Errorf("%s does not validate: %v", file, err)
				}
				for _, field := range raw.Required {
					broken := maps.Clone(value.(map[string]any))
					delete(broken, field)
					if schema.Validate(broken) == nil {
						t.Errorf("%s validates without %s", file, field)
					}
				}
			}
		})
	}
}

type schemaObject struct {
	Required   []string                `json:"required"`
	Properties map[string]schemaObject `json:"properties"`
	Items      *schemaObject           `json:"items"`
	Enum       []string                `json:"enum"`
}

// same compares the fields of a schema with those of a type.
func same(t *testing.T, at string, s schemaObject, typ reflect.Type) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	types := map[string]reflect.Type{}
	for i := range typ.NumField() {
		name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
		types[name] = typ.Field(i).Type
	}
	if have, want := slices.Sorted(maps.Keys(s.Properties)), slices.Sorted(maps.Keys(types)); !slices.Equal(have, want) {
		t.Errorf("%s: the schema has %v\nthe type has %v", at, have, want)
	}
	for name, p := range s.Properties {
		switch {
		case len(p.Properties) > 0:
			same(t, at+"."+name, p, types[name])
		case p.Items != nil && len(p.Items.Properties) > 0:
			same(t, at+"."+name, *p.Items, types[name].Elem())
		}
	}
}

// The words of the schemas are those of the code.
func TestSchemasKnowTheWords(t *testing.T) {
	t.Parallel()
	var event, inbound schemaObject
	if err := json.Unmarshal(streams.Schema("event.document"), &event); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(streams.Schema("inbound.document"), &inbound); err != nil {
		t.Fatal(err)
	}
	is := func(what string, have []string, want ...string) {
		t.Helper()
		if have = slices.DeleteFunc(slices.Clone(have), func(s string) bool { return s == "" }); !slices.Equal(slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(want))) {
			t.Errorf("%s: the schema has %v, the code %v", what, have, want)
		}
	}
	var states, statuses []string
	for _, s := range document.States() {
		states = append(states, string(s))
	}
	for _, s := range document.MLSStatuses() {
		if s != document.MLSNone {
			statuses = append(statuses, string(s))
		}
	}
	kinds := []string{string(document.Business), string(document.KindMLS), string(document.KindMLR)}
	codes := []string{string(document.AP), string(document.AB), string(document.RE)}
	is("state", event.Properties["state"].Enum, states...)
	is("mls.status", event.Properties["mls"].Properties["status"].Enum, statuses...)
	is("mls.code", event.Properties["mls"].Properties["code"].Enum, codes...)
	is("verdict", event.Properties["verdict"].Enum, string(document.VerdictPassed), string(document.VerdictRejected), string(document.VerdictUnverified))
	is("document_kind", event.Properties["document_kind"].Enum, kinds...)
	is("kind", inbound.Properties["kind"].Enum, kinds...)
	is("mls_code", inbound.Properties["mls_code"].Enum, codes...)
	is("mls_type", inbound.Properties["mls_type"].Enum, string(document.AlwaysSend), string(document.FailureOnly))
}

// A full event, and both ways to bring a body, validate; what the code refuses the
// schema refuses too, where it can.
func TestSchemasAgreeWithTheCode(t *testing.T) {
	t.Parallel()
	valid := func(name string, body []byte) error {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			return err
		}
		return compiled(t, name).Validate(value)
	}
	id := delivery.NewID()
	e := &document.Event{ID: id, Version: 2, State: document.Dead, Cause: document.CauseRefused, Tenant: "acme", DocumentKind: document.Business, SBDHInstanceID: "s", AS4MessageID: "m", Reference: "r",
		At: noon, ReceivedAt: noon, AS4At: noon, Attempts: 1, DueAt: &noon, Verdict: document.VerdictPassed, Issues: []document.Issue{{Code: "c", Severity: document.BW, Text: "t", Location: "l"}},
		Answer: &delivery.Answer{Category: delivery.Permanent, Phase: "p", Code: "HTTP_422", Enhanced: "5.0.0", Text: "t"}, MLS: &document.MLS{Status: document.MLSClaimed, Code: document.AB, Delivery: id},
		MLSDueAt: &noon, C4Country: "AT", Duplicate: "sbdh"}
	body, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := valid("event.document", body); err != nil {
		t.Errorf("%v\n%s", err, body)
	}
	at := noon.Add(-time.Second)
	full := func() *document.Inbound {
		return &document.Inbound{Version: 1, AS4MessageID: "m", SBDHInstanceID: "s", SenderID: "a::b", ReceiverID: "a::c", DocTypeID: "a::d", ProcessID: "a::e", C1Country: "AT", C2SeatID: "POP000306",
			ContentType: "text/xml", ReceivedAt: noon, AS4At: &at, Kind: document.Business, MLSTo: "a::f", MLSType: document.FailureOnly, Body: []byte("x")}
	}
	ref := func(r document.BodyReference) func(*document.Inbound) {
		return func(in *document.Inbound) { in.Body, in.BodyRef = nil, &r }
	}
	sum := strings.Repeat("ab", 32)
	for what, change := range map[string]func(*document.Inbound){
		"as it is": func(*document.Inbound) {}, "by url": ref(document.BodyReference{URL: "https://a.example/b", Size: 1, SHA256: sum}), "by key": ref(document.BodyReference{Object: "a/b", Size: 1, SHA256: sum}),
		"an mls": func(in *document.Inbound) {
			in.Kind, in.Reference, in.MLSCode, in.MLSTo, in.MLSType = document.KindMLS, "r", document.AP, "", ""
		},
		"no country": func(in *document.Inbound) { in.C1Country = "" }, "!version": func(in *document.Inbound) { in.Version = 2 }, "!sender": func(in *document.Inbound) { in.SenderID = "b" },
		"!country": func(in *document.Inbound) { in.C1Country = "at" }, "!kind": func(in *document.Inbound) { in.Kind = "order" }, "!type": func(in *document.Inbound) { in.MLSType = "NEVER" },
		"!no body": func(in *document.Inbound) { in.Body = nil }, "!no id": func(in *document.Inbound) { in.AS4MessageID = "" }, "!hash": ref(document.BodyReference{URL: "https://a/b", Size: 1, SHA256: "AB"}),
		"!scheme": ref(document.BodyReference{URL: "ftp://a/b", Size: 1, SHA256: sum}), "!nowhere": ref(document.BodyReference{Size: 1, SHA256: sum}), "!size": ref(document.BodyReference{Object: "a", SHA256: sum}),
		"!long": func(in *document.Inbound) { in.SBDHInstanceID = strings.Repeat("x", document.MaxID+1) },
	} {
		in := full()
		change(in)
		body, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		_, decode := document.DecodeInbound(body)
		schema := valid("inbound.document", body)
		if refused := strings.HasPrefix(what, "!"); (decode != nil) != refused || (schema != nil) != refused {
			t.Errorf("%s: the code says %v, the schema %v", what, decode, schema)
		}
	}
}
