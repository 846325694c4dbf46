package smtp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caarlos0/env/v11"
)

func TestDefaults(t *testing.T) {
	t.Parallel()
	c := Defaults()
	if c.TLS != TLSRequired || c.Port != 587 || c.ConnectTimeout != 5*time.Second || c.ReadTimeout != 30*time.Second || c.FinalTimeout != 2*time.Minute || c.MaxBodyChars != 1048576 {
		t.Errorf("%+v", c)
	}
	c.Host = "mail.example.com"
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if got := c.LongestSend(); got < c.SendTimeout+c.FinalTimeout || got > 5*time.Minute {
		t.Errorf("longest send %s", got)
	}
	if err := env.ParseWithOptions(&Config{}, env.Options{Environment: map[string]string{}}); err == nil || !strings.Contains(err.Error(), "MAIL_SERVER_HOST") {
		t.Errorf("a host is not asked for: %v", err)
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	t.Parallel()
	garbage := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(garbage, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	const secret = "p4ss\nword"
	err := Config{
		Host: "a b", Port: 70000, TLS: "yes", Auth: "cram", CAFile: garbage, Username: "u\x00", Password: secret,
		FromAddress: "x", FromName: "\r", ReplyTo: "y", Helo: "a b",
	}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, name := range []string{
		"MAIL_SERVER_HOST", "MAIL_SERVER_PORT", "MAIL_SERVER_TLS", "MAIL_SERVER_AUTH", "MAIL_SERVER_CA_FILE", "MAIL_SERVER_USERNAME",
		"MAIL_SERVER_PASSWORD", "MAIL_SERVER_FROM_ADDRESS", "MAIL_SERVER_FROM_NAME", "MAIL_SERVER_REPLY_TO", "MAIL_SERVER_HELO",
		"MAIL_SERVER_MAX_CONNECTIONS", "MAIL_SERVER_MAX_MESSAGES_PER_CONNECTION", "MAIL_SERVER_IDLE_TIMEOUT", "MAIL_TRANSPORT_CONNECTION_TIMEOUT",
		"MAIL_TRANSPORT_READ_TIMEOUT", "MAIL_TRANSPORT_SEND_TIMEOUT", "MAIL_TRANSPORT_FINAL_TIMEOUT", "MAIL_MAX_BODY_CHARS", "MAIL_MAX_MESSAGE_BYTES",
	} {
		if !strings.Contains(err.Error(), name+":") {
			t.Errorf("%s is not named", name)
		}
	}
	if strings.Contains(err.Error(), "p4ss") {
		t.Error("the password is told")
	}
	if _, err := New(Config{}); err == nil {
		t.Error("New takes anything")
	}
}

func TestCredentialsNeverInPlainText(t *testing.T) {
	t.Parallel()
	c := Defaults()
	c.Host, c.TLS, c.Username, c.Password = "mail.example.com", TLSNone, "u", "p"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "plain text") {
		t.Errorf("%v", err)
	}
	c.Host = "127.0.0.1"
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.Username = ""
	if err := c.Validate(); err == nil {
		t.Error("a password without a user")
	}
}

func TestConfigTellsNoSecret(t *testing.T) {
	t.Parallel()
	c := Defaults()
	c.Password = "hunter2hunter2"
	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, v := range []any{c, &c, struct{ C Config }{c}} {
			if s := fmt.Sprintf(verb, v); strings.Contains(s, "hunter2") {
				t.Errorf("%s of %T: %s", verb, v, s)
			}
		}
	}
}
