package daemon

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

type probe struct {
	Settings
	Key     Secret          `env:"PROBE_KEY,notEmpty" like:"32 bytes in base64" doc:"The key."`
	PIN     int             `env:"PROBE_PIN" secret:"true" envDefault:"1234"`
	Wait    time.Duration   `env:"PROBE_WAIT" envDefault:"30s" min:"1s" max:"1h" doc:"How long | at most."`
	Tries   int             `env:"PROBE_TRIES" envDefault:"5" min:"1"`
	Most    *int64          `env:"PROBE_MOST" min:"0"`
	Size    uint16          `env:"PROBE_SIZE" envDefault:"100"`
	Share   float64         `env:"PROBE_SHARE" envDefault:"0.5" max:"1"`
	Strict  bool            `env:"PROBE_STRICT"`
	Mode    string          `env:"PROBE_MODE" envDefault:"fast" oneof:"fast|slow"`
	Hosts   []string        `env:"PROBE_HOSTS" envDefault:"a,b"`
	Waits   []time.Duration `env:"PROBE_WAITS"`
	Home    *url.URL        `env:"PROBE_HOME"`
	Backend backend         `envPrefix:"PROBE_BACKEND_"`
}

type backend struct {
	Timeout time.Duration `env:"TIMEOUT" envDefault:"10s"`
	Hold    time.Duration `env:"HOLD" envDefault:"20s"`
	Token   string        `env:"TOKEN" secret:"true"`
}

func (b *backend) Validate() error {
	var all []error
	if b.Hold < b.Timeout {
		all = append(all, errors.New("PROBE_BACKEND_HOLD: shorter than PROBE_BACKEND_TIMEOUT; it must be at least as long"))
	}
	if strings.HasPrefix(b.Token, "bad-") {
		all = append(all, errors.New("PROBE_BACKEND_TOKEN: "+b.Token+" is refused"))
	}
	return errors.Join(all...)
}

const goodURL = "postgres://posthouse:hunter2secret@127.0.0.1:5432/posthouse"

func environ(more ...string) []string {
	return append([]string{"PATH=/bin", "HOME=/root", "DATABASE_URL=" + goodURL, "PROBE_KEY=k3y-k3y-k3y"}, more...)
}

func TestLoadDefaults(t *testing.T) {
	t.Parallel()
	cfg, warnings, err := Load[probe](environ("PROBE_HOSTS= x , ,y,", "PROBE_WAITS=1s, 2s", "PROBE_STRICT=1", "PROBE_WAIT=", "HEALTH_LISTEN=",
		"PROBE_HOME=https://example.org/x", "PROBE_KEY=pa$$word with=signs "), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 0 {
		t.Errorf("warnings %q", warnings)
	}
	if cfg.Wait != 30*time.Second || cfg.Backend.Timeout != 10*time.Second || cfg.ShutdownTimeout != 30*time.Second || cfg.PIN != 1234 {
		t.Errorf("defaults are missing: %+v", cfg)
	}
	if !slices.Equal(cfg.Hosts, []string{"x", "y"}) || !slices.Equal(cfg.Waits, []time.Duration{time.Second, 2 * time.Second}) {
		t.Errorf("lists %q %v", cfg.Hosts, cfg.Waits)
	}
	if cfg.HealthListen != "" {
		t.Errorf("an empty HEALTH_LISTEN must be off, not %q", cfg.HealthListen)
	}
	if cfg.Key.Reveal() != "pa$$word with=signs " || cfg.Home.Host != "example.org" || !cfg.Strict {
		t.Errorf("values changed on the way: %+v", cfg)
	}
}

func TestLoadOneFault(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set  string
		want []string // every word of the one line
	}{
		{"PROBE_WAIT=30", []string{"PROBE_WAIT:", `"30"`, "duration", "30s, 5m"}},
		{"PROBE_WAIT=2h", []string{"PROBE_WAIT:", "too large", "1s to 1h"}},
		{"PROBE_WAIT=-1s", []string{"PROBE_WAIT:", "too small"}},
		{"PROBE_TRIES=five", []string{"PROBE_TRIES:", `"five"`, "whole number, at least 1"}},
		{"PROBE_MOST=-1", []string{"PROBE_MOST:", "too small"}},
		{"PROBE_TRIES=0", []string{"PROBE_TRIES:", "too small"}},
		{"PROBE_TRIES=99999999999", []string{"PROBE_TRIES:", "whole number"}},
		{"PROBE_SIZE=-1", []string{"PROBE_SIZE:", `"-1"`, "whole number"}},
		{"PROBE_SHARE=half", []string{"PROBE_SHARE:", "number, at most 1"}},
		{"PROBE_SHARE=1.5", []string{"PROBE_SHARE:", "too large"}},
		{"PROBE_STRICT=yes", []string{"PROBE_STRICT:", `"yes"`, "true or false"}},
		{"PROBE_MODE=Fast", []string{"PROBE_MODE:", `"Fast"`, "one of fast, slow"}},
		{"PROBE_WAITS=1s,2", []string{"PROBE_WAITS:", "list of duration", `","`}},
		{"PROBE_HOME=http://[::1", []string{"PROBE_HOME:", "URL"}},
		{"PROBE_KEY=", []string{"PROBE_KEY:", "not set or empty", "32 bytes", "PROBE_KEY_FILE"}},
		{"PROBE_PIN=s3cr3t-pin", []string{"PROBE_PIN:", "not shown", "whole number"}},
		{"PROBE_BACKEND_TIMEOUT=10", []string{"PROBE_BACKEND_TIMEOUT:", "duration"}},
		{"PROBE_BACKEND_HOLD=1s", []string{"PROBE_BACKEND_HOLD:", "at least as long"}},
		{"PROBE_BACKEND_TOKEN=bad-s3cr3t-token", []string{"PROBE_BACKEND_TOKEN:", redacted}},
		{"DATABASE_URL=mysql://u:s3cr3t-pw@h/d", []string{"DATABASE_URL:", "postgres://"}},
		{"DATABASE_URL=postgres://u:s3cr3t-p/w@h:1/d", []string{"DATABASE_URL:", "percent-encoded"}},
		{"DATABASE_URL=postgres://u:s3cr3t-pw@h/d?sslmode=on", []string{"DATABASE_URL:", "sslmode", "verify-full"}},
		{"DATABASE_URL=postgres://u:s3cr3t-pw@h:x/d", []string{"DATABASE_URL:", "a port is a number"}},
		{"DATABASE_URL=postgres://u:s3cr3t-pw@h", []string{"DATABASE_URL:", "no database name"}},
		{"NATS_URL=nats://u:s3cr3t-pw@h", []string{"NATS_URL:", "NATS_PASSWORD"}},
		{"DATABASE_MAX_CONNS=0", []string{"DATABASE_MAX_CONNS:", "too small", "1 to 1000"}},
		{"HEALTH_LISTEN=8081", []string{"HEALTH_LISTEN:", `"8081"`, "host:port"}},
		{"LOG_LEVEL=loud", []string{"LOG_LEVEL:", "trace, debug, info, warn, error"}},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=collector:4318", []string{"OTEL_EXPORTER_OTLP_ENDPOINT:", "http or https URL"}},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=ftp://u:s3cr3t-pw@h", []string{"OTEL_EXPORTER_OTLP_ENDPOINT:", "not shown"}},
		{"SHUTDOWN_TIMEOUT=0s", []string{"SHUTDOWN_TIMEOUT:", "too small", "1s to 1h"}},
		{"PROBE_KEY_FILE=/nowhere/key", []string{"PROBE_KEY:", "set twice", "PROBE_KEY_FILE"}},
		{"PROBE_BACKEND_TOKEN_FILE=/nowhere/key", []string{"PROBE_BACKEND_TOKEN:", "PROBE_BACKEND_TOKEN_FILE", "/nowhere/key", "no such file"}},
		{"PROBE_WIAT=5s", []string{"PROBE_WIAT is not a setting", "did you mean PROBE_WAIT?"}},
		{"PROBE_TRYS=3", []string{"PROBE_TRYS", "did you mean PROBE_TRIES?"}},
		{"probe_mode=slow", []string{"probe_mode", "did you mean PROBE_MODE?"}},
		{"PROBE_KEY_FIEL=/run/key", []string{"did you mean PROBE_KEY_FILE?"}},
		{"POSTHOUSE_COLOUR=red", []string{"POSTHOUSE_COLOUR is not a setting"}},
		{"SENDER_LIMT=1", []string{"did you mean SENDER_LIMIT?"}},
	} {
		t.Run(c.set, func(t *testing.T) {
			t.Parallel()
			_, _, err := Load[probe](environ(c.set), []string{"SENDER_LIMIT", "TASK"})
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatalf("error %v, want Faults", err)
			}
			if len(faults) != 1 {
				t.Fatalf("%d faults, want one:\n%v", len(faults), err)
			}
			for _, w := range c.want {
				if !strings.Contains(faults[0], w) {
					t.Errorf("%q does not say %q", faults[0], w)
				}
			}
			for _, secret := range []string{"s3cr3t", "hunter2secret", "k3y-k3y"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%q shows a secret", err.Error())
				}
			}
		})
	}
}

func TestLoadAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, _, err := Load[probe]([]string{"PROBE_WAIT=30", "PROBE_TRIES=x", "NATS_ULR=nats://h", "PROBE_BACKEND_HOLD=1s", "LOG_FORMAT=xml"}, nil)
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 7 {
		t.Fatalf("want 7 faults (5 set, DATABASE_URL and PROBE_KEY missing), got\n%v", err)
	}
	for _, name := range []string{"DATABASE_URL", "PROBE_KEY", "PROBE_WAIT", "PROBE_TRIES", "NATS_ULR", "PROBE_BACKEND_HOLD", "LOG_FORMAT"} {
		if !strings.Contains(err.Error(), "\n  "+name) {
			t.Errorf("no line begins with %s:\n%v", name, err)
		}
	}
}

func TestLoadForeignNames(t *testing.T) {
	t.Parallel()
	_, _, err := Load[probe](environ(
		"SENDER_LIMIT=3", "SENDER_KEY_FILE=/x", // of another service
		"TERM=x", "TERN=x", "LC_ALL=C", "PGUSER=x", "OTEL_SERVICE_NAME=x", "EMPTY=",
		"POSTHOUSE_GATEWAY_SERVICE_HOST=10.0.0.1", "POSTHOUSE_GATEWAY_SERVICE_PORT_HTTP=80", "POSTHOUSE_GATEWAY_PORT=tcp://10.0.0.1:80",
		"POSTHOUSE_GATEWAY_PORT_80_TCP_ADDR=10.0.0.1"), []string{"SENDER_LIMIT", "SENDER_KEY", "SENDER_KEY_FILE"})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLoadSecretFromFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	cfg, _, err := Load[probe]([]string{"DATABASE_URL_FILE=" + path("url", goodURL+"\r\n"), "PROBE_KEY=", "PROBE_KEY_FILE=" + path("key", " k \n"), "PROBE_BACKEND_TOKEN_FILE=" + path("token", "t")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.DatabaseURL.Reveal() != goodURL || cfg.Key.Reveal() != " k " || cfg.Backend.Token != "t" {
		t.Errorf("%q %q %q", cfg.DatabaseURL.Reveal(), cfg.Key.Reveal(), cfg.Backend.Token)
	}
	for name, p := range map[string]string{"empty": path("empty", "\n"), "larger": path("large", strings.Repeat("x", secretFileLimit+1)), "directory": dir} {
		if _, _, err := Load[probe](environ("PROBE_BACKEND_TOKEN_FILE="+p), nil); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLoadWarnings(t *testing.T) {
	t.Parallel()
	_, warnings, err := Load[probe](environ("DATABASE_URL=postgres://u:hunter2secret@db.example.org/d?sslmode=disable"), nil)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "not encrypted") || strings.Contains(warnings[0], "hunter2") {
		t.Fatalf("%q %v", warnings, err)
	}
}

// A slip of the programmer is told like one of the operator, so that the first
// test that loads the configuration finds it.
func TestLoadFaultsOfTheProgram(t *testing.T) {
	t.Parallel()
	_, _, err := Load[struct {
		Forgotten string
		Ignored   string   `env:"-"`
		Empty     string   `env:"A_REQUIRED,required"`
		Expanded  string   `env:"B_EXPANDED,expand"`
		Channel   chan int `env:"C_CHANNEL" envDefault:"1"`
		Wrong     int      `env:"D_WRONG" envDefault:"one"`
		Untagged  Secret
		_         int
	}](nil, nil)
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != 6 {
		t.Fatalf("%v", err)
	}
	if _, _, err := Load[int](nil, nil); err == nil {
		t.Error("an int is no configuration")
	}
}

func TestDescribe(t *testing.T) {
	t.Parallel()
	// One process that runs two services has the shared settings twice.
	all := Describe(&struct {
		A struct{ Settings }
		B probe
	}{})
	find := func(name string) Variable {
		t.Helper()
		var found []Variable
		for _, v := range all {
			if v.Name == name {
				found = append(found, v)
			}
		}
		if len(found) != 1 {
			t.Fatalf("%s is described %d times", name, len(found))
		}
		return found[0]
	}
	if v := find("DATABASE_URL"); !v.Secret || !v.Required || v.Type != "text" {
		t.Errorf("%+v", v)
	}
	if v := find("PROBE_WAIT"); v.Type != "duration, 1s to 1h" || v.Default != "30s" || v.Secret || v.Required {
		t.Errorf("%+v", v)
	}
	if v := find("PROBE_BACKEND_TOKEN"); !v.Secret {
		t.Errorf("%+v", v)
	}
	find("NATS_URL")
	var b strings.Builder
	if err := Table(&b, all); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{
		"| variable | type | default | meaning |\n|---|---|---|---|\n",
		"| `PROBE_WAIT` | duration, 1s to 1h | `30s` | How long \\| at most. |\n",
		"| `PROBE_KEY`, `PROBE_KEY_FILE` | text | required | The key. |\n",
	} {
		if !strings.Contains(b.String(), row) {
			t.Errorf("the table lacks %q:\n%s", row, b.String())
		}
	}
	if names := Names(probe{}); !slices.Contains(names, "PROBE_KEY_FILE") || slices.Contains(names, "PROBE_WAIT_FILE") {
		t.Errorf("names %q", names)
	}
	for _, v := range Describe(Settings{}) {
		if v.Doc == "" {
			t.Errorf("%s has no doc tag", v.Name)
		}
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"ABC", "ABC", 0}, {"ABC", "ACB", 1}, {"ABC", "AB", 1}, {"ABCD", "BACE", 2}, {"NATS_URL", "NATS_ULR", 1}, {"KITTEN", "SITTING", 3}} {
		if got := distance(c.a, c.b, 5); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := distance(c.b, c.a, 5); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.b, c.a, got, c.want)
		}
	}
}

// FuzzLoad: no environment makes Load panic or tell a secret.
func FuzzLoad(f *testing.F) {
	f.Add("PROBE_WAIT", "30", goodURL)
	f.Add("PROBE_KEY", "", "postgres://u:pässwörd%zz@[::1/d")
	f.Add("NATS_URL", "nats://u:p@h", "postgres://")
	f.Fuzz(func(t *testing.T, name, value, database string) {
		const secret = "Zq7-unguessable-9fX"
		if strings.HasSuffix(name, fileSuffix) || strings.ContainsAny(name, "=\x00") {
			t.Skip("not read from the disk here")
		}
		_, warnings, err := Load[probe]([]string{"DATABASE_URL=" + database + secret, "PROBE_PIN=" + secret, "PROBE_BACKEND_TOKEN=bad-" + secret, name + "=" + value}, nil)
		told := strings.Join(warnings, "\n")
		if err != nil {
			told += err.Error()
		}
		if strings.Contains(told, secret) {
			t.Fatalf("told a secret: %s", told)
		}
	})
}
