package sftp_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/forwardtest"
	"github.com/posthouse-io/posthouse/pkg/forward/sftp"
)

func config(s *server) sftp.Config {
	return sftp.Config{
		Host: "127.0.0.1", Port: s.port, Username: user, Password: password,
		HostKeys:  []string{strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.host.PublicKey())))},
		Directory: "in", Pattern: "{datetime}_{sbdh-instance-id}_{incoming-id}",
		ConnectTimeout: 10 * time.Second, Timeout: 30 * time.Second, IdleTimeout: 10 * time.Second,
	}
}

func open(t *testing.T, c sftp.Config) forward.Forwarder {
	t.Helper()
	f, err := sftp.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func fixture(kind string, alter func(*server, *sftp.Config), moods ...forwardtest.Mood) forwardtest.Fixture {
	return forwardtest.Fixture{
		Moods: append(moods, forwardtest.Away),
		New: func(t *testing.T, m forwardtest.Mood) forwardtest.Peer {
			s := newServer(t, kind)
			cfg := config(s)
			if alter != nil {
				alter(s, &cfg)
			}
			switch m {
			case forwardtest.Away:
				s.stop()
			case forwardtest.Refusing:
				s.rename = func(string, string) error { return os.ErrPermission }
			case forwardtest.Babbling:
				s.rename = func(string, string) error {
					return errors.New(strings.Repeat("no ", 50) + password + "\r\n" + strings.Repeat("why ", 1000))
				}
			case forwardtest.Silent:
				s.rename = func(from, to string) error {
					err := os.Rename(from, to)
					<-s.done
					return err
				}
			case forwardtest.Gone:
				s.rename = func(from, to string) error {
					err := os.Rename(from, to)
					s.drop()
					return err
				}
			}
			f, err := sftp.New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return forwardtest.Peer{
				Forwarder: f, Secrets: []string{password},
				Stored: func() []forwardtest.Stored { list, _ := s.stored(t); return list },
				Litter: func() []string { _, l := s.stored(t); return l },
			}
		},
	}
}

func TestSuite(t *testing.T) {
	all := []forwardtest.Mood{forwardtest.Refusing, forwardtest.Babbling, forwardtest.Silent, forwardtest.Gone}
	t.Run("a scripted server", func(t *testing.T) { forwardtest.Suite(t, fixture("script", nil, all...)) })
	t.Run("one that cannot replace a file", func(t *testing.T) {
		forwardtest.Suite(t, fixture("script", func(s *server, _ *sftp.Config) { s.old = true }, forwardtest.Refusing, forwardtest.Silent, forwardtest.Gone))
	})
	t.Run("the library's server, sidecars", func(t *testing.T) {
		forwardtest.Suite(t, fixture("library", func(_ *server, c *sftp.Config) { c.WriteMetadata = true }))
	})
	if name := opensshServer(); name != "" {
		t.Run("OpenSSH", func(t *testing.T) { forwardtest.Suite(t, fixture("openssh", nil)) })
	} else {
		t.Log("OpenSSH's sftp-server is not installed: the two servers above stand for it")
	}
}

func TestSessionsAreKept(t *testing.T) {
	t.Parallel()
	s := newServer(t, "script")
	f := open(t, config(s))
	for range 5 {
		if out := f.Forward(t.Context(), forwardtest.Document(100)); out.Verdict != delivery.Accepted {
			t.Fatalf("%+v", out)
		}
	}
	if n := s.connections(); n != 1 {
		t.Errorf("%d connections for 5 documents", n)
	}
	// One that died while it was kept is replaced, and no document suffers.
	s.drop()
	if out := f.Forward(t.Context(), forwardtest.Document(100)); out.Verdict != delivery.Accepted {
		t.Errorf("%+v", out)
	}
	if n := s.connections(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

func TestAccounts(t *testing.T) {
	t.Parallel()
	key, public := newKeyFile(t, "open sesame")
	other, _ := newKeyFile(t, "")
	known := filepath.Join(t.TempDir(), "known_hosts")
	for name, c := range map[string]struct {
		alter    func(*server, *sftp.Config)
		category delivery.Category
		code     string
	}{
		"password":       {func(*server, *sftp.Config) {}, "", ""},
		"wrong password": {func(_ *server, c *sftp.Config) { c.Password = "hunter2" }, delivery.Auth, forward.CodeAuth},
		"key": {func(_ *server, c *sftp.Config) {
			c.Password, c.PrivateKeyFile, c.Passphrase = "", key, "open sesame"
		}, "", ""},
		"another key": {func(_ *server, c *sftp.Config) { c.Password, c.PrivateKeyFile = "", other }, delivery.Auth, forward.CodeAuth},
		"another host key": {func(_ *server, c *sftp.Config) {
			c.HostKeys = []string{string(ssh.MarshalAuthorizedKey(newKey(t).PublicKey()))}
		}, delivery.Config, forward.CodeHostKey},
		"known_hosts": {func(s *server, c *sftp.Config) {
			line := fmt.Sprintf("[127.0.0.1]:%d %s", s.port, ssh.MarshalAuthorizedKey(s.host.PublicKey()))
			if err := os.WriteFile(known, []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			c.HostKeys, c.KnownHostsFile = nil, known
		}, "", ""},
		"known_hosts, another key": {func(s *server, c *sftp.Config) {
			line := fmt.Sprintf("[127.0.0.1]:%d %s", s.port, ssh.MarshalAuthorizedKey(newKey(t).PublicKey()))
			if err := os.WriteFile(known+"2", []byte(line), 0o600); err != nil {
				t.Fatal(err)
			}
			c.HostKeys, c.KnownHostsFile = nil, known+"2"
		}, delivery.Config, forward.CodeHostKey},
		"no such folder": {func(_ *server, c *sftp.Config) { c.Directory = "elsewhere" }, delivery.Transient, "STORAGE_FAILED"},
	} {
		s := newServer(t, "script")
		s.login = public
		cfg := config(s)
		c.alter(s, &cfg)
		out := open(t, cfg).Forward(t.Context(), forwardtest.Document(100))
		if c.code == "" {
			if out.Verdict != delivery.Accepted {
				t.Errorf("%s: %+v", name, out)
			}
			continue
		}
		if out.Verdict != delivery.Refused || out.Answer.Category != c.category || out.Answer.Code != c.code || !out.Server || strings.Contains(fmt.Sprint(out), "hunter2") {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

func TestRemoteName(t *testing.T) {
	t.Parallel()
	s := newServer(t, "script")
	d := forwardtest.Document(100)
	out := open(t, config(s)).Forward(t.Context(), d)
	if want := "in/20261103040506_" + d.SBDHInstanceID + "_" + d.ID.String() + ".xml"; out.RemoteID != want || out.Confirmed {
		t.Errorf("%+v, want %s", out, want)
	}
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	s := newServer(t, "script")
	s.rename = func(string, string) error { <-s.done; return nil }
	cfg := config(s)
	cfg.Timeout = time.Second
	out := open(t, cfg).Forward(t.Context(), forwardtest.Document(100))
	if out.Verdict != delivery.Unknown || out.Answer.Code != forward.CodeTimeout {
		t.Errorf("%+v", out)
	}
}

func TestConfigNamesEachFault(t *testing.T) {
	t.Parallel()
	err := sftp.Config{Host: "a b", Directory: "../x", Pattern: "x"}.Check()
	if err == nil {
		t.Fatal("no fault")
	}
	for _, want := range []string{"_HOST:", "_PORT", "_USERNAME", "_PASSWORD", "_HOST_KEYS", "_DIRECTORY", "_FILENAME_PATTERN", "_CONNECT_TIMEOUT", "_SFTP_TIMEOUT"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in\n%v", want, err)
		}
	}
	c := sftp.Config{Password: "hunter2", Passphrase: "hunter2"}
	if strings.Contains(c.String()+c.GoString()+fmt.Sprintf("%v %+v %#v", c, c, c), "hunter2") {
		t.Error("the password is shown")
	}
}
