package bus_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/caarlos0/env/v11"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/bus"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	good := bus.Config{URL: "nats://127.0.0.1:4222, tls://b:4222"}
	for name, c := range map[string]struct {
		change func(*bus.Config)
		want   string // the variable that the fault names, "" = none
	}{
		"good":            {func(*bus.Config) {}, ""},
		"empty":           {func(c *bus.Config) { c.URL = "" }, "NATS_URL"},
		"no scheme":       {func(c *bus.Config) { c.URL = "127.0.0.1:4222" }, "NATS_URL"},
		"other scheme":    {func(c *bus.Config) { c.URL = "http://a:1" }, "NATS_URL"},
		"second wrong":    {func(c *bus.Config) { c.URL = "nats://a:1,://" }, "NATS_URL"},
		"password in URL": {func(c *bus.Config) { c.URL = "nats://u:" + secret + "@a:1" }, "NATS_URL"},
		"broken URL":      {func(c *bus.Config) { c.URL = "nats://u:" + secret + "%zz@a:1" }, "NATS_URL"},
		"password alone":  {func(c *bus.Config) { c.Password = secret }, "NATS_USER"},
		"user alone":      {func(c *bus.Config) { c.User = "u" }, "NATS_PASSWORD"},
		"both ways":       {func(c *bus.Config) { c.User, c.Password, c.CredsFile = "u", secret, "config_test.go" }, "NATS_CREDS_FILE"},
		"no such file":    {func(c *bus.Config) { c.CAFile = "/nowhere" }, "NATS_CA_FILE"},
		"half a key":      {func(c *bus.Config) { c.CertFile = "config_test.go" }, "NATS_CERT_FILE"},
		"wild prefix":     {func(c *bus.Config) { c.InboxPrefix = "_INBOX.>" }, "NATS_INBOX_PREFIX"},
		"dotted prefix":   {func(c *bus.Config) { c.InboxPrefix = "_INBOX." }, "NATS_INBOX_PREFIX"},
		"good prefix":     {func(c *bus.Config) { c.InboxPrefix = "_INBOX.services" }, ""},
	} {
		cfg := good
		c.change(&cfg)
		err := cfg.Validate()
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want+":") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the secret is in %v", name, err)
		}
		if _, e := bus.Connect(t.Context(), cfg, "x", zerolog.Nop()); c.want != "" && e == nil {
			t.Errorf("%s: Connect takes it", name)
		}
	}
	cfg := bus.Config{URL: "nats://a:1", User: "u", Password: secret}
	j, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(cfg), fmt.Sprintf("%+v", cfg), fmt.Sprintf("%#v", cfg), string(j)} {
		if strings.Contains(s, secret) {
			t.Errorf("the secret is in %s", s)
		}
	}
}

// Every field has its variable, its line of documentation and a working default.
func TestConfigTags(t *testing.T) {
	t.Parallel()
	for f := range reflect.TypeFor[bus.Config]().Fields() {
		if !strings.HasPrefix(f.Tag.Get("env"), "NATS_") || f.Tag.Get("doc") == "" {
			t.Errorf("%s has no variable or no doc", f.Name)
		}
	}
	cfg, err := env.ParseAsWithOptions[bus.Config](env.Options{Environment: map[string]string{}})
	if err != nil || cfg.Validate() != nil {
		t.Error(err, cfg.Validate())
	}
}
