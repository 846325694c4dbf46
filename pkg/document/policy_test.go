package document_test

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/document"
)

// The defaults in the tags and those of the code are the same ones, and each
// variable is described.
func TestDefaultPolicyIsWhatTheTagsSay(t *testing.T) {
	t.Parallel()
	p := document.DefaultPolicy()
	v := reflect.ValueOf(p)
	for i := range v.NumField() {
		tag, got := v.Type().Field(i).Tag, fmt.Sprint(v.Field(i).Interface())
		want := tag.Get("envDefault")
		if d, err := time.ParseDuration(want); err == nil {
			want = d.String()
		}
		if b, err := strconv.ParseBool(want); err == nil {
			want = fmt.Sprint(b)
		}
		if got != want || tag.Get("doc") == "" || tag.Get("env") == "" {
			t.Errorf("%s: %q, the tag says %q", v.Type().Field(i).Name, got, want)
		}
	}
	if err := p.Validate(); err != nil {
		t.Error(err)
	}
}

func TestAllFaultsOfAPolicyAtOnce(t *testing.T) {
	t.Parallel()
	err := document.Policy{RetryEvery: time.Hour, RetryFor: time.Minute, PostponeFor: -1, APITimeout: time.Hour, MLSType: "failure_only"}.Validate()
	for _, name := range []string{"VERIFICATION_VERIFIER_FAIL_MODE", "VERIFICATION_INBOUND_REJECTION_FORWARDING", "VERIFICATION_DEFERRED_RETRY_INTERVAL", "CIRCUIT_BREAKER_DEFER_MAX_DURATION",
		"MLS_TYPE:", "MLS_TYPE_SOURCE", "MLS_SENDING_TRIGGER", "MLS_SENDING_API_TIMEOUT:", "MLS_SENDING_API_TIMEOUT_CODE", "MLS_FORWARDING_REFUSED_CODE"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s is not told: %v", name, err)
		}
	}
}
