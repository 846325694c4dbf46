package verify_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/verify"
)

func TestFaultsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*verify.Config)
		want   []string
	}{
		"good":           {func(*verify.Config) {}, nil},
		"none":           {func(c *verify.Config) { c.Verifiers, c.Tokens, c.Timeouts = nil, nil, nil }, nil},
		"no name":        {func(c *verify.Config) { c.Verifiers[0] = "https://v.example/" }, []string{"VERIFICATION_VERIFIERS: item 1", "VERIFICATION_TOKENS"}},
		"twice":          {func(c *verify.Config) { c.Verifiers[1] = c.Verifiers[0] }, []string{"twice"}},
		"no host":        {func(c *verify.Config) { c.Verifiers[0] = "a=https:///x" }, []string{"a is not a URL"}},
		"password":       {func(c *verify.Config) { c.Verifiers[0] = "a=https://u:hunter2@v.example/" }, []string{"VERIFICATION_TOKENS"}},
		"password, bad":  {func(c *verify.Config) { c.Verifiers[0] = "a=https://u:hunter2@v.example:port/" }, []string{"a is not a URL"}},
		"fragment":       {func(c *verify.Config) { c.Verifiers[0] = "a=https://v.example/#x" }, []string{"fragment"}},
		"plain":          {func(c *verify.Config) { c.Verifiers[0] = "a=http://v.example/" }, []string{"plain text"}},
		"scheme":         {func(c *verify.Config) { c.Verifiers[0] = "a=ftp://v.example/" }, []string{"ftp"}},
		"too many":       {func(c *verify.Config) { c.Verifiers = many(11) }, []string{"at most 10"}},
		"token of none":  {func(c *verify.Config) { c.Tokens = []string{"c=hunter2"} }, []string{"VERIFICATION_TOKENS: item 1"}},
		"no token":       {func(c *verify.Config) { c.Tokens = []string{"a="} }, []string{"VERIFICATION_TOKENS"}},
		"bad token":      {func(c *verify.Config) { c.Tokens = []string{"a=hunter2\r\nX: y"} }, []string{"VERIFICATION_TOKENS"}},
		"bad timeout":    {func(c *verify.Config) { c.Timeouts = []string{"a=soon", "x=1s", "b=0s"} }, []string{"that of a", "item 2", "that of b"}},
		"no time":        {func(c *verify.Config) { c.Timeout, c.ConnectTimeout, c.IdleTimeout = 0, -1, 0 }, []string{"VERIFICATION_TIMEOUT", "VERIFICATION_CONNECT_TIMEOUT", "VERIFICATION_IDLE_TIMEOUT"}},
		"no authorities": {func(c *verify.Config) { c.CAFile = "doc.go" }, []string{"VERIFICATION_CA_FILE"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := verify.Defaults()
			cfg.Verifiers = []string{"a=https://v.example/validate?profile=x", " b=https://w.example"}
			cfg.Tokens, cfg.Timeouts = []string{"a=hunter2=="}, []string{"b=45s"}
			c.change(&cfg)
			err := cfg.Validate()
			if (err == nil) != (c.want == nil) {
				t.Fatal(err)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%v, want %q", err, w)
				}
			}
			if text := fmt.Sprintf("%v %s %#v %+v", err, cfg, cfg, cfg); strings.Contains(text, "hunter2") {
				t.Errorf("a secret is told: %s", text)
			}
			if err == nil && len(cfg.Timeouts) > 0 && cfg.LongestAsk() != 46*time.Second {
				t.Error(cfg.LongestAsk())
			}
			if _, newErr := verify.New(cfg); (newErr == nil) != (err == nil) {
				t.Error(newErr)
			}
		})
	}
}

func many(n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("v%d=https://v.example", i))
	}
	return list
}

func TestSomebodyMustVerify(t *testing.T) {
	t.Parallel()
	c := verify.Defaults()
	if c.Required(false) != nil || c.Required(true) == nil {
		t.Error("inbound")
	}
	c.Outbound = true
	if c.Required(false) == nil {
		t.Error("outbound")
	}
	c.Verifiers = []string{"a=https://v.example"}
	if c.Required(true) != nil {
		t.Error("there is one")
	}
}

func TestDefaultsAreWhatTheTagsSay(t *testing.T) {
	t.Parallel()
	v := reflect.ValueOf(verify.Defaults())
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Tag.Get("doc") == "" || !strings.HasPrefix(f.Tag.Get("env"), "VERIFICATION_") {
			t.Errorf("%s is not described", f.Name)
		}
		want := f.Tag.Get("envDefault")
		if want == "" {
			if !v.Field(i).IsZero() {
				t.Errorf("%s is %v and has no default", f.Name, v.Field(i))
			}
			continue
		}
		if got := fmt.Sprint(v.Field(i).Interface()); got != want {
			t.Errorf("%s: %s, the tag says %s", f.Name, got, want)
		}
	}
}
