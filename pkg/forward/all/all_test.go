package all_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"

	"github.com/posthouse-io/posthouse/pkg/daemon"
	"github.com/posthouse-io/posthouse/pkg/forward/all"
)

func parse(t *testing.T, vars map[string]string) all.Config {
	t.Helper()
	var c all.Config
	if err := env.ParseWithOptions(&c, env.Options{Environment: vars}); err != nil {
		t.Fatal(err)
	}
	return c
}

// Each mode is built from the variables that its documentation names.
func TestEachModeIsBuilt(t *testing.T) {
	t.Parallel()
	for mode, c := range map[string]struct {
		vars map[string]string
		kind string
	}{
		all.HTTPSync:  {map[string]string{"FORWARDING_HTTP_ENDPOINT": "https://backend.test/in"}, "*http.Forwarder"},
		all.HTTPAsync: {map[string]string{"FORWARDING_HTTP_ENDPOINT": "https://backend.test/in", "FORWARDING_HTTP_HEADERS": "X-A: 1;X-B: 2"}, "*http.Forwarder"},
		all.S3:        {map[string]string{"FORWARDING_S3_BUCKET": "documents", "FORWARDING_S3_REGION": "eu-central-1"}, "*s3.Forwarder"},
		all.SFTP: {map[string]string{
			"FORWARDING_SFTP_HOST": "sftp.test", "FORWARDING_SFTP_USERNAME": "u", "FORWARDING_SFTP_PASSWORD": "p",
			"FORWARDING_SFTP_HOST_KEYS": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl",
		}, "*sftp.Forwarder"},
		all.Filesystem: {map[string]string{"FORWARDING_FILESYSTEM_DIRECTORY": t.TempDir()}, "*filesystem.Forwarder"},
	} {
		c.vars["FORWARDING_MODE"] = mode
		cfg := parse(t, c.vars)
		if err := cfg.Validate(); err != nil || !cfg.Enabled() || cfg.LongestForward() < time.Minute {
			t.Errorf("%s: %v", mode, err)
		}
		f, err := all.New(cfg, nil)
		if err != nil {
			t.Errorf("%s: %v", mode, err)
			continue
		}
		if got := reflect.TypeOf(f).String(); got != c.kind {
			t.Errorf("%s: %s", mode, got)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A process that does not use a way is not asked for its settings.
func TestLoadedByTheDaemon(t *testing.T) {
	t.Parallel()
	type settings struct{ Forwarding all.Config }
	if _, _, err := daemon.Load[settings](nil, nil); err != nil {
		t.Error(err)
	}
	_, _, err := daemon.Load[settings]([]string{"FORWARDING_MODE=sftp", "FORWARDING_SFTP_PASSWORD=hunter22"}, nil)
	if err == nil || !strings.Contains(err.Error(), "FORWARDING_SFTP_HOST:") || strings.Contains(err.Error(), "FORWARDING_S3") || strings.Contains(err.Error(), "hunter22") {
		t.Errorf("%v", err)
	}
	c, _, err := daemon.Load[settings]([]string{
		"FORWARDING_MODE=http_post_async", "FORWARDING_HTTP_ENDPOINT=https://x.test/in", "FORWARDING_HTTP_HEADERS=A: b; C: d",
		"FORWARDING_HTTP_SIGNING_SECRETS=whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
	}, nil)
	if err != nil || len(c.Forwarding.HTTP.Headers) != 2 || len(c.Forwarding.HTTP.SigningSecrets) != 1 {
		t.Errorf("%v", err)
	}
}

func TestLinkNeedsABackend(t *testing.T) {
	t.Parallel()
	vars := map[string]string{"FORWARDING_MODE": all.S3, "FORWARDING_S3_BUCKET": "documents", "FORWARDING_S3_REGION": "eu-central-1", "FORWARDING_S3_LINK": "sync"}
	if err := parse(t, vars).Validate(); err == nil || !strings.Contains(err.Error(), "FORWARDING_HTTP_ENDPOINT") {
		t.Errorf("%v", err)
	}
	if f, err := all.New(parse(t, vars), nil); err == nil || f != nil {
		t.Errorf("%v %v", f, err)
	}
	vars["FORWARDING_HTTP_ENDPOINT"] = "https://backend.test/in"
	c := parse(t, vars)
	f, err := all.New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.LongestForward() != c.S3.LongestForward()+c.HTTP.LongestForward() {
		t.Error("the link takes time, too")
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

func TestWithoutAWay(t *testing.T) {
	t.Parallel()
	none := parse(t, nil)
	if f, err := all.New(none, nil); !errors.Is(err, all.ErrNone) || f != nil || none.Validate() != nil || none.Enabled() {
		t.Errorf("%v %v", f, err)
	}
	for _, mode := range []string{all.HTTPSync, all.HTTPAsync, all.S3, all.SFTP, all.Filesystem, all.NATS, "pigeon"} {
		c := parse(t, map[string]string{"FORWARDING_MODE": mode})
		if c.Validate() == nil {
			t.Errorf("%s needs nothing", mode)
		}
		if f, err := all.New(c, nil); err == nil || f != nil {
			t.Errorf("%s: %v %v", mode, f, err)
		}
	}
	subject := map[string]string{"FORWARDING_MODE": all.NATS, "FORWARDING_NATS_SUBJECT": "backend.in"}
	if f, err := all.New(parse(t, subject), nil); err == nil || f != nil {
		t.Error("no connection, and no fault")
	}
}
