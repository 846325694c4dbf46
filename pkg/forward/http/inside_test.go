package http

import (
	"strings"
	"testing"
	"time"
)

func TestParseRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, " 7 ": 7 * time.Second, "-7": 0, "7.5": 0, "soon": 0, "86401": maxRetryAfter, "9223372036854775808": maxRetryAfter,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:03:05 GMT": 0, "Sat, 02 Jan 2027 03:05:05 GMT": maxRetryAfter,
		"Friday, 02-Jan-26 03:05:05 GMT": time.Minute, "Fri Jan  2 03:05:05 2026": time.Minute,
	} {
		if got := parseRetryAfter(in, now); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120")
	f.Add("Fri, 02 Jan 2026 03:05:05 GMT")
	f.Fuzz(func(t *testing.T, s string) {
		if d := parseRetryAfter(s, time.Unix(1_700_000_000, 0)); d < 0 || d > maxRetryAfter {
			t.Errorf("%q: %s", s, d)
		}
	})
}

func TestTraceparent(t *testing.T) {
	t.Parallel()
	good := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for in, want := range map[string]bool{good: true, "": false, good[1:]: false, strings.ToUpper(good): false, good + "\r\nX: 1": false, strings.Repeat("0", 55): false} {
		if traceparent(in) != want {
			t.Errorf("%q", in)
		}
	}
}

func TestConfigNamesEachFault(t *testing.T) {
	t.Parallel()
	bad := Config{
		Endpoint: "http://user:hunter2@x.test/#f", CAFile: "/nowhere", CertFile: "/nowhere", BearerToken: "a b", Username: "u:v",
		SigningSecrets: []string{"whsec_c2hvcnQ="}, Headers: []string{"Host: x"}, Timeout: 1, ResponseTimeout: 2,
	}
	err := bad.Check()
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{"_ENDPOINT: must not hold", "_ENDPOINT: http://", "_CA_FILE", "_CERT_FILE", "_BEARER_TOKEN: excludes", "_BEARER_TOKEN: contains", "_SIGNING_SECRETS: item 1", "_HEADERS: item 1", "_CONNECT_TIMEOUT", "_IDLE_TIMEOUT", "_TIMEOUT: 1ns is less"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	if s := err.Error() + bad.String() + bad.GoString(); strings.Contains(s, "hunter2") || strings.Contains(s, "c2hvcnQ") {
		t.Error("a fault tells a secret")
	}
	good := Config{Endpoint: "https://x.test/in", ConnectTimeout: 1, ResponseTimeout: 1, Timeout: 1, IdleTimeout: 1}
	if err := good.Check(); err != nil {
		t.Error(err)
	}
	for _, endpoint := range []string{"", "x.test", "https://", "ftp://x.test", "https:x", "://", "https://:443"} {
		good.Endpoint = endpoint
		if good.Check() == nil {
			t.Errorf("%q passed", endpoint)
		}
	}
}
