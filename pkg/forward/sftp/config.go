package sftp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/posthouse-io/posthouse/pkg/forward"
)

// Config describes the server.
type Config struct {
	Host           string   `env:"FORWARDING_SFTP_HOST" doc:"SFTP server"`
	Port           int      `env:"FORWARDING_SFTP_PORT" envDefault:"22" min:"1" max:"65535" doc:"port of the SFTP server"`
	Username       string   `env:"FORWARDING_SFTP_USERNAME" doc:"account name"`
	Password       string   `env:"FORWARDING_SFTP_PASSWORD" secret:"true" json:"-" doc:"password of the account"`
	PrivateKeyFile string   `env:"FORWARDING_SFTP_PRIVATE_KEY_FILE" doc:"file with the account's private key (PEM or OpenSSH)"`
	Passphrase     string   `env:"FORWARDING_SFTP_PRIVATE_KEY_PASSPHRASE" secret:"true" json:"-" doc:"passphrase of the private key"`
	HostKeys       []string `env:"FORWARDING_SFTP_HOST_KEYS" envSeparator:"," doc:"public keys of the server (ssh-ed25519 AAAA...), several while one is replaced"`
	KnownHostsFile string   `env:"FORWARDING_SFTP_KNOWN_HOSTS_FILE" doc:"known_hosts file, instead of FORWARDING_SFTP_HOST_KEYS"`

	Directory     string `env:"FORWARDING_SFTP_DIRECTORY" envDefault:"." doc:"existing folder on the server that documents are written to"`
	Pattern       string `env:"FORWARDING_SFTP_FILENAME_PATTERN" envDefault:"{datetime}_{incoming-id}" doc:"name of a file without .xml; {datetime}, {incoming-id} (needed), {sbdh-instance-id}, {tenant}"`
	WriteMetadata bool   `env:"FORWARDING_SFTP_WRITE_METADATA" envDefault:"false" doc:"write a .json file with the document's metadata, before the document"`

	ConnectTimeout time.Duration `env:"FORWARDING_SFTP_CONNECT_TIMEOUT" envDefault:"10s" min:"10ms" max:"1m" doc:"limit for opening a session, authentication included"`
	Timeout        time.Duration `env:"FORWARDING_SFTP_TIMEOUT" envDefault:"5m" min:"10ms" max:"1h" doc:"limit for one forward from beginning to end"`
	IdleTimeout    time.Duration `env:"FORWARDING_SFTP_IDLE_TIMEOUT" envDefault:"30s" min:"0s" max:"10m" doc:"a kept session that was unused for longer is not used again"`
}

// LongestForward bounds one Forward whatever the server does.
func (c Config) LongestForward() time.Duration { return c.Timeout + c.ConnectTimeout + time.Second }

// Check names every fault at once, each by its variable, none with a secret.
func (c Config) Check() error {
	_, err := c.inspect()
	return err
}

// inspect is Check, and the private key that it has read: to decrypt one takes
// long, and that is its purpose.
func (c Config) inspect() (key ssh.Signer, err error) {
	var faults []error
	fault := func(name, format string, args ...any) {
		faults = append(faults, fmt.Errorf(name+": "+format, args...))
	}
	if c.Host == "" || strings.ContainsAny(c.Host, " \t\r\n/\\@") {
		fault("FORWARDING_SFTP_HOST", "%.64q is no host name", c.Host)
	}
	if c.Port < 1 || c.Port > 65535 {
		fault("FORWARDING_SFTP_PORT", "%d is no port (1 to 65535)", c.Port)
	}
	if c.Username == "" {
		fault("FORWARDING_SFTP_USERNAME", "is empty")
	}
	switch {
	case c.Password == "" && c.PrivateKeyFile == "":
		fault("FORWARDING_SFTP_PASSWORD", "and FORWARDING_SFTP_PRIVATE_KEY_FILE are both empty; one is needed")
	case c.PrivateKeyFile != "":
		if key, err = c.signer(); err != nil {
			fault("FORWARDING_SFTP_PRIVATE_KEY_FILE", "%w", err)
		}
	}
	switch {
	case len(c.HostKeys) == 0 && c.KnownHostsFile == "":
		fault("FORWARDING_SFTP_HOST_KEYS", "is empty, and so is FORWARDING_SFTP_KNOWN_HOSTS_FILE: without either, any server could take the documents")
	case len(c.HostKeys) > 0 && c.KnownHostsFile != "":
		fault("FORWARDING_SFTP_HOST_KEYS", "excludes FORWARDING_SFTP_KNOWN_HOSTS_FILE")
	default:
		if _, _, err := c.trust(); err != nil {
			fault("FORWARDING_SFTP_HOST_KEYS", "%w", err)
		}
	}
	if c.Directory == "" || strings.ContainsAny(c.Directory, "\x00\r\n") || strings.Contains("/"+path.Clean(c.Directory)+"/", "/../") {
		fault("FORWARDING_SFTP_DIRECTORY", "%.200q is not a path on the server", c.Directory)
	}
	if _, err := forward.ParsePattern(c.Pattern); err != nil {
		fault("FORWARDING_SFTP_FILENAME_PATTERN", "%w", err)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"FORWARDING_SFTP_CONNECT_TIMEOUT", c.ConnectTimeout},
		{"FORWARDING_SFTP_TIMEOUT", c.Timeout},
	} {
		if d.value <= 0 {
			fault(d.name, "%s must be more than 0", d.value)
		}
	}
	return key, errors.Join(faults...)
}

// String names the account without its password.
func (c Config) String() string { return fmt.Sprintf("sftp %s@%s", c.Username, c.address()) }

// GoString keeps the password out of %#v as well.
func (c Config) GoString() string { return c.String() }

func (c Config) address() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }

// signer reads the private key; the errors of the library name no secret.
func (c Config) signer() (ssh.Signer, error) {
	pem, err := os.ReadFile(c.PrivateKeyFile)
	if err != nil {
		return nil, err
	}
	if c.Passphrase != "" {
		return ssh.ParsePrivateKeyWithPassphrase(pem, []byte(c.Passphrase))
	}
	return ssh.ParsePrivateKey(pem)
}

// trust gives the check of the host key and the algorithms of the keys that are
// known: a server has several keys and would else show one that is not.
func (c Config) trust() (ssh.HostKeyCallback, []string, error) {
	if c.KnownHostsFile != "" {
		check, err := knownhosts.New(c.KnownHostsFile)
		if err != nil {
			return nil, nil, err
		}
		var types []string
		var unknown *knownhosts.KeyError
		// Asking with a key that nobody has makes the library list those it wants.
		if errors.As(check(c.address(), &net.TCPAddr{IP: net.IPv4zero}, nobody{}), &unknown) {
			for _, k := range unknown.Want {
				types = append(types, algorithms(k.Key.Type())...)
			}
		}
		if len(types) == 0 {
			return nil, nil, fmt.Errorf("%s does not know %s", c.KnownHostsFile, c.address())
		}
		return check, types, nil
	}
	var keys []ssh.PublicKey
	var types []string
	for i, line := range c.HostKeys {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
		if err != nil {
			return nil, nil, fmt.Errorf("item %d is not a public key such as ssh-ed25519 AAAA", i+1)
		}
		keys, types = append(keys, key), append(types, algorithms(key.Type())...)
	}
	return func(_ string, _ net.Addr, shown ssh.PublicKey) error {
		for _, k := range keys {
			if bytes.Equal(k.Marshal(), shown.Marshal()) {
				return nil
			}
		}
		return errHostKey
	}, types, nil
}

var errHostKey = errors.New("the server shows a host key that is not configured")

// algorithms are the signatures that a type of key can make; SHA-1 is none of
// ours.
func algorithms(keyType string) []string {
	if keyType == ssh.KeyAlgoRSA {
		return []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	}
	return []string{keyType}
}

// nobody is a key that is in no file.
type nobody struct{}

func (nobody) Type() string                        { return "nobody" }
func (nobody) Marshal() []byte                     { return []byte("nobody") }
func (nobody) Verify([]byte, *ssh.Signature) error { return errHostKey }
