package sftp_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/posthouse-io/posthouse/pkg/forward/forwardtest"
)

const (
	user     = "posthouse"
	password = "correct-horse-battery"
)

// server is an SSH server with one folder to write to. Who serves the files is
// kind's business.
type server struct {
	dir    string // absolute; the folder that documents go to is dir/in
	host   ssh.Signer
	login  ssh.PublicKey // of the account
	kind   string        // script, library or openssh
	port   int
	mu     sync.Mutex
	conns  map[net.Conn]bool
	total  int
	rename func(from, to string) error // of kind script; nil renames
	old    bool                        // of kind script: no posix-rename
	wg     sync.WaitGroup
	l      net.Listener
	done   chan struct{} // closed when it stops
}

func newServer(t *testing.T, kind string) *server {
	t.Helper()
	s := &server{dir: t.TempDir(), kind: kind, conns: map[net.Conn]bool{}, done: make(chan struct{})}
	if err := os.Mkdir(filepath.Join(s.dir, "in"), 0o750); err != nil {
		t.Fatal(err)
	}
	s.host = newKey(t)
	var err error
	if s.l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.port = s.l.Addr().(*net.TCPAddr).Port
	s.wg.Go(func() {
		for {
			c, err := s.l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns[c], s.total = true, s.total+1
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(t, c) })
		}
	})
	t.Cleanup(s.stop)
	return s
}

func (s *server) stop() {
	select {
	case <-s.done:
		return
	default:
	}
	close(s.done)
	_ = s.l.Close()
	s.drop()
	s.wg.Wait()
}

// drop closes every connection.
func (s *server) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

func (s *server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

func (s *server) serve(t *testing.T, raw net.Conn) {
	defer raw.Close()
	cfg := &ssh.ServerConfig{
		PasswordCallback: func(m ssh.ConnMetadata, p []byte) (*ssh.Permissions, error) {
			if m.User() == user && string(p) == password {
				return nil, nil
			}
			return nil, errors.New("no")
		},
		PublicKeyCallback: func(m ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
			if m.User() == user && s.login != nil && string(k.Marshal()) == string(s.login.Marshal()) {
				return nil, nil
			}
			return nil, errors.New("no")
		},
	}
	cfg.AddHostKey(s.host)
	conn, channels, requests, err := ssh.NewServerConn(raw, cfg)
	if err != nil {
		return
	}
	defer conn.Close()
	s.wg.Go(func() { ssh.DiscardRequests(requests) })
	for c := range channels {
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		s.wg.Go(func() {
			for r := range requests {
				ok := r.Type == "subsystem" && string(r.Payload[4:]) == "sftp"
				_ = r.Reply(ok, nil)
			}
		})
		s.wg.Go(func() {
			defer channel.Close()
			s.files(t, channel, raw)
		})
	}
}

func (s *server) files(t *testing.T, channel ssh.Channel, raw net.Conn) {
	switch s.kind {
	case "script":
		h := &script{server: s, raw: raw}
		var stream io.ReadWriteCloser = channel
		if s.old {
			stream = &withoutPosix{Channel: channel}
		}
		server := sftp.NewRequestServer(stream, sftp.Handlers{FileGet: h, FilePut: h, FileCmd: h.commands(), FileList: h})
		_ = server.Serve()
		_ = server.Close()
	case "library":
		server, err := sftp.NewServer(channel, sftp.WithServerWorkingDirectory(s.dir))
		if err != nil {
			t.Error(err)
			return
		}
		_ = server.Serve()
		_ = server.Close()
	case "openssh":
		cmd := exec.Command(opensshServer(), "-e", "-d", s.dir)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Error(err)
			return
		}
		cmd.Stdout = channel
		if err := cmd.Start(); err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(in, channel)
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// opensshServer is the server of OpenSSH, where it is installed.
func opensshServer() string {
	for _, name := range []string{os.Getenv("SFTP_SERVER"), "/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server", "/usr/libexec/sftp-server"} {
		if info, err := os.Stat(name); name != "" && err == nil && info.Mode().IsRegular() {
			return name
		}
	}
	return ""
}

// script serves files below the folder and does with a rename what the test
// says.
type script struct {
	*server
	raw net.Conn
}

func (h *script) local(name string) string { return filepath.Join(h.dir, filepath.FromSlash(name)) }

func (h *script) Fileread(*sftp.Request) (io.ReaderAt, error) { return nil, sftp.ErrSSHFxOpUnsupported }

func (h *script) Filewrite(r *sftp.Request) (io.WriterAt, error) {
	flags, p := os.O_WRONLY, r.Pflags()
	if p.Creat {
		flags |= os.O_CREATE
	}
	if p.Excl {
		flags |= os.O_EXCL
	}
	return os.OpenFile(h.local(r.Filepath), flags, 0o640)
}

func (h *script) commands() sftp.FileCmder {
	if h.old {
		return h
	}
	return posix{h}
}

func (h *script) Filecmd(r *sftp.Request) error {
	switch r.Method {
	case "Rename":
		if h.old {
			if _, err := os.Lstat(h.local(r.Target)); err == nil {
				return sftp.ErrSSHFxFailure
			}
		}
		return h.renamed(r)
	case "Remove":
		return os.Remove(h.local(r.Filepath))
	}
	return sftp.ErrSSHFxOpUnsupported
}

func (h *script) renamed(r *sftp.Request) error {
	if h.rename != nil {
		return h.rename(h.local(r.Filepath), h.local(r.Target))
	}
	return os.Rename(h.local(r.Filepath), h.local(r.Target))
}

// withoutPosix misspells the extension in what the server says of itself.
type withoutPosix struct{ ssh.Channel }

func (w *withoutPosix) Write(b []byte) (int, error) {
	return w.Channel.Write(bytes.ReplaceAll(b, []byte("posix-rename@"), []byte("other-rename@")))
}

// posix can replace a file.
type posix struct{ *script }

func (h posix) PosixRename(r *sftp.Request) error { return h.renamed(r) }

func (h *script) Filelist(r *sftp.Request) (sftp.ListerAt, error) {
	info, err := os.Lstat(h.local(r.Filepath))
	return one{info}, err
}

func (h *script) Lstat(r *sftp.Request) (sftp.ListerAt, error) { return h.Filelist(r) }

type one struct{ info fs.FileInfo }

func (o one) ListAt(to []fs.FileInfo, at int64) (int, error) {
	if at > 0 {
		return 0, io.EOF
	}
	return copy(to, []fs.FileInfo{o.info}), io.EOF
}

// stored gives the documents in the folder and everything else below it.
func (s *server) stored(t *testing.T) (stored []forwardtest.Stored, litter []string) {
	t.Helper()
	err := filepath.WalkDir(s.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasSuffix(path, ".json") {
			return err
		}
		name, err := filepath.Rel(filepath.Join(s.dir, "in"), path)
		if err != nil {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") || strings.HasPrefix(name, "..") {
			litter = append(litter, name)
			return nil
		}
		b, err := os.ReadFile(path)
		stored = append(stored, forwardtest.Stored{Name: name, Size: int64(len(b)), SHA256: sha256.Sum256(b)})
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	return stored, litter
}

func newKey(t *testing.T) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer
}

// newKeyFile makes a private key with a passphrase, and its public half.
func newKeyFile(t *testing.T, passphrase string) (string, ssh.PublicKey) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return name, key
}
