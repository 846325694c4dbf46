package quota_test

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

	"github.com/posthouse-io/posthouse/pkg/quota"
	"github.com/posthouse-io/posthouse/streams"
)

// The schema of a warning has the fields of the type that writes it, and takes a
// full one and no broken one.
func TestSchemaDescribesTheEvent(t *testing.T) {
	t.Parallel()
	raw := streams.Schema("event.quota")
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource("event.quota", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("event.quota")
	if err != nil {
		t.Fatal(err)
	}
	full := func() map[string]any {
		body, err := json.Marshal(quota.Event{Schema: 1, Event: "quota.0.acme.mail", Kind: "quota", State: quota.Exhausted, Percent: 100, Bucket: "acme", Tenant: "acme",
			Channel: "mail", Month: "2026-11", Used: 3, Ceiling: 3, At: time.Now().UTC(), Text: "t"})
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		return value.(map[string]any)
	}
	if err := schema.Validate(full()); err != nil {
		t.Errorf("a full event does not validate: %v", err)
	}
	for field, wrong := range map[string]any{"used": "many", "month": "2026-13", "state": "lost", "at": "noon", "kind": "lane"} {
		value := full()
		if value[field] = wrong; schema.Validate(value) == nil {
			t.Errorf("%s may be %v", field, wrong)
		}
	}
	var have struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(raw, &have); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, f := range reflect.VisibleFields(reflect.TypeFor[quota.Event]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		want = append(want, name)
	}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(have.Properties)); !slices.Equal(got, want) {
		t.Errorf("the schema has %v\nthe type has %v", got, want)
	}
}
