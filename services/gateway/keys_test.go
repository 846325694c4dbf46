package gateway

import (
	"net/http"
	"strings"
	"testing"

	"github.com/posthouse-io/posthouse/pkg/daemon"
)

func TestKeysThatAreNone(t *testing.T) {
	t.Parallel()
	h := hashed("a")
	for _, s := range []string{"a", "a=" + h, ":operator=" + h, "a:=" + h, "a:admin=" + h, "a:operator,=" + h, "a:operator@=" + h, "a:operator@x.y=" + h, "a:operator@_=" + h, "a:operator=" + h[1:], "a:operator=plain-token",
		"a:operator=" + h + ";a:reader=" + hashed("b"), "a:operator=" + h + ";b:reader=" + h, "a b:operator=" + h, "a:operator=" + hashed("")} {
		keys, err := ParseKeys(s)
		if err == nil {
			t.Errorf("%q: %+v", s, keys)
			continue
		}
		if strings.Contains(err.Error(), "plain-token") || strings.Contains(err.Error(), h) {
			t.Errorf("%q: the fault shows the hash: %v", s, err)
		}
	}
	for _, s := range []string{"", " ; ", "a:operator=" + strings.ToUpper(h) + ";"} {
		if _, err := ParseKeys(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestTokensThatAreNone(t *testing.T) {
	t.Parallel()
	keys, err := ParseKeys(tokens())
	if err != nil {
		t.Fatal(err)
	}
	is := func(want string, headers ...string) {
		t.Helper()
		h := http.Header{}
		for i := 0; i+1 < len(headers); i += 2 {
			h.Add(headers[i], headers[i+1])
		}
		k, ok := keys.Find(h)
		if ok != (want != "") || k.Name != want {
			t.Errorf("%.80v: %v %v, want %q", headers, k.Name, ok, want)
		}
		if _, ok := (Keys)(nil).Find(h); ok {
			t.Errorf("%.80v: no keys, and it is let in", headers)
		}
	}
	is("ann", "X-Token", operator)
	is("ap", "X-Token", publisher)
	is("eve", "Authorization", "Bearer "+reader)
	is("gx", "Authorization", "bearer "+globex)
	is("")
	is("", "X-Token", "")
	is("", "X-Token", " "+operator)
	is("", "X-Token", operator+"\x00")
	is("", "X-Token", operator[:len(operator)-1])
	is("", "X-Token", strings.ToUpper(operator))
	is("", "X-Token", hashed(operator)) // the hash is no token
	is("", "X-Token", strings.Repeat("x", 1<<16))
	is("", "Authorization", "Basic "+operator)
	is("", "Authorization", "Bearer")
	is("", "Authorization", operator)
	is("", "X-Token", operator, "X-Token", operator)
	is("", "X-Token", operator, "Authorization", "Bearer "+operator)
	is("", "X-Token", operator, "Authorization", "Basic eDp5")
}

func FuzzParseKeys(f *testing.F) {
	f.Add(tokens())
	f.Add("a:operator,reader@t=" + hashed("x") + ";;")
	f.Fuzz(func(t *testing.T, s string) {
		keys, err := ParseKeys(s)
		if err != nil && keys != nil {
			t.Fatal("keys beside a fault")
		}
		for _, k := range keys {
			if k.Name == "" || len(k.Roles) == 0 || k.hash == ([32]byte{}) && !strings.Contains(s, strings.Repeat("0", 64)) {
				t.Fatalf("%+v", k)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"":                             func(*Config) {},
		"GATEWAY_LISTEN: \"nowhere\"":  func(c *Config) { c.Listen = "nowhere" },
		"GATEWAY_LISTEN: others":       func(c *Config) { c.Listen = "0.0.0.0:8080" },
		"GATEWAY_LISTEN: others can r": func(c *Config) { c.Listen = ":8080" },
		"GATEWAY_TLS_CERT":             func(c *Config) { c.TLSCert = "a.pem" },
		"GATEWAY_TLS_CERT: it needs":   func(c *Config) { c.TLSKey = "a.key" },
		"GATEWAY_TOKENS: entry 1":      func(c *Config) { c.Tokens = daemon.NewSecret("plain") },
	} {
		c := Config{Listen: "127.0.0.1:8080"}
		change(&c)
		err := c.Validate()
		if (want == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := (Config{Listen: "0.0.0.0:8080", AllowPlain: true}).Validate(); err != nil {
		t.Error(err)
	}
	if err := (Config{Listen: "[::1]:0"}).Validate(); err != nil {
		t.Error(err)
	}
}
