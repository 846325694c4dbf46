package sftp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
)

// Extensions of OpenSSH that are used where they exist.
const (
	posixRename = "posix-rename@openssh.com"
	fsync       = "fsync@openssh.com"
)

// session is one connection with its SFTP channel.
type session struct {
	conn   *ssh.Client
	files  *sftp.Client
	used   time.Time // when it was last given back
	remote string
}

// open dials, authenticates and starts the channel. Whatever it started is ended
// when it fails.
func (f *Forwarder) open(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.ConnectTimeout)
	defer cancel()
	dialer := net.Dialer{KeepAlive: 30 * time.Second}
	raw, err := dialer.DialContext(ctx, "tcp", f.cfg.address())
	if err != nil {
		return nil, stepError{forward.PhaseDial, err}
	}
	// The handshake knows no ctx; closing the connection ends it.
	unwatch := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer unwatch()
	conn, channels, requests, err := ssh.NewClientConn(raw, f.cfg.address(), &ssh.ClientConfig{
		User:              f.cfg.Username,
		Auth:              f.auth,
		HostKeyCallback:   f.check,
		HostKeyAlgorithms: f.algorithms,
		ClientVersion:     "SSH-2.0-posthouse",
	})
	if err != nil {
		_ = raw.Close() // closed already, in most cases
		return nil, stepError{forward.PhaseAuth, err}
	}
	client := ssh.NewClient(conn, channels, requests)
	files, err := sftp.NewClient(client, sftp.UseConcurrentWrites(true))
	if err != nil {
		_ = client.Close()
		_ = client.Wait()
		return nil, stepError{forward.PhaseDial, fmt.Errorf("start sftp: %w", err)}
	}
	return &session{conn: client, files: files, remote: raw.RemoteAddr().String()}, nil
}

// end closes the connection and waits for the goroutines of both libraries.
// Closing the channel first would wait for a server that is silent.
func (s *session) end() {
	_ = s.conn.Close()
	_ = s.conn.Wait()
	_ = s.files.Close()
	_ = s.files.Wait()
}

// stepError says how far an opening got.
type stepError struct {
	phase delivery.Phase
	err   error
}

func (e stepError) Error() string { return e.err.Error() }
func (e stepError) Unwrap() error { return e.err }

// refused classifies an error from before the rename request.
func refused(err error) forward.Outcome {
	phase, code := forward.PhaseUpload, forward.CodeLost
	var step stepError
	if errors.As(err, &step) {
		phase, code = step.phase, forward.CodeDial
	}
	var unknownHost *knownhosts.KeyError
	var auth *ssh.ServerAuthError
	var status *sftp.StatusError
	var network net.Error
	switch {
	case errors.Is(err, errHostKey) || errors.As(err, &unknownHost):
		// Perhaps somebody else's server: a person must look, not a timer.
		return forward.Refused(delivery.Config, forward.PhaseAuth, forward.CodeHostKey, forward.Reason(err), true)
	case phase == forward.PhaseAuth && (errors.As(err, &auth) || authFailed(err)):
		return forward.Refused(delivery.Auth, phase, forward.CodeAuth, "the server does not accept the account", true)
	case errors.As(err, &status):
		return forward.Refused(delivery.Transient, phase, statusCode(status), forward.Reason(err), true)
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
		code = forward.CodeStorage
	case errors.As(err, &network) && network.Timeout():
		code = forward.CodeTimeout
	}
	return forward.Refused(delivery.Transient, phase, code, forward.Reason(err), true)
}

// statusCode names the answer of the server: SFTP_3 is "permission denied".
func statusCode(s *sftp.StatusError) string { return fmt.Sprintf("SFTP_%d", s.Code) }

// shelf keeps sessions for the next document. The zero value is empty and open.
type shelf struct {
	mu     sync.Mutex
	closed bool
	kept   []*session
	litter []string // hidden files whose connection broke
}

// Kept sessions and remembered files at most; what exceeds the latter is
// forgotten and stays hidden.
const (
	maxKept   = 4
	maxLitter = 1000
)

// take gives the session that was used last, and ends those that are too old.
func (s *shelf) take(age time.Duration) *session {
	s.mu.Lock()
	var found *session
	var old []*session
	for n := len(s.kept); n > 0 && found == nil; n = len(s.kept) {
		last := s.kept[n-1]
		s.kept = s.kept[:n-1]
		if time.Since(last.used) <= age {
			found = last
		} else {
			old = append(old, last)
		}
	}
	s.mu.Unlock()
	for _, o := range old {
		o.end()
	}
	return found
}

// give puts a session back that is still good.
func (s *shelf) give(one *session) {
	one.used = time.Now()
	s.mu.Lock()
	keep := !s.closed && len(s.kept) < maxKept
	if keep {
		s.kept = append(s.kept, one)
	}
	s.mu.Unlock()
	if !keep {
		one.end()
	}
}

// forget remembers a hidden file that could not be removed.
func (s *shelf) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.litter) < maxLitter {
		s.litter = append(s.litter, name)
	}
}

// takeLitter gives the hidden files to remove.
func (s *shelf) takeLitter() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.litter
	s.litter = nil
	return all
}

func (s *shelf) close() {
	s.mu.Lock()
	all := s.kept
	s.closed, s.kept = true, nil
	s.mu.Unlock()
	for _, one := range all {
		one.end()
	}
}
