package verifytest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Question is what the verifier was asked.
type Question struct {
	Method string
	Path   string
	Header http.Header
	Size   int64 // bytes of the document that arrived
	SHA256 [32]byte
	Whole  bool // the document ended as announced
}

// Server is a scripted verifier. Use Start, or Handler behind a server of one's
// own (for TLS).
type Server struct {
	URL string // http://127.0.0.1:<port>/verify

	handling sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	script  []Step
	rest    Step
	seen    []Question
	asked   chan struct{} // closed and renewed at each question
	closing chan struct{}
	server  *http.Server
	served  chan struct{}
}

// New is a verifier without a server: it passes everything until it has a script.
func New() *Server {
	return &Server{rest: Pass(), asked: make(chan struct{}), closing: make(chan struct{})}
}

// Start listens on a free port of the loopback interface.
func Start() (*Server, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("verifier: %w", err)
	}
	s := New()
	s.URL = "http://" + l.Addr().String() + "/verify"
	s.server = &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second}
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		_ = s.server.Serve(l) // ends with Close
	}()
	return s, nil
}

// Script appends steps; each answers one question.
func (s *Server) Script(steps ...Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = append(s.script, steps...)
}

// Always is the step for all questions after the script; at first Pass.
func (s *Server) Always(step Step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = step
}

// Questions are all that were asked so far and whose document was read.
func (s *Server) Questions() []Question {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Question(nil), s.seen...)
}

// Wait returns when n questions have been asked, or when done is closed.
func (s *Server) Wait(done <-chan struct{}, n int) error {
	for {
		s.mu.Lock()
		have, asked := len(s.seen), s.asked
		s.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-asked:
		case <-done:
			return fmt.Errorf("verifier: %d questions of %d", have, n)
		}
	}
}

// Close ends the steps that hang and stops the server, if it was started.
func (s *Server) Close() error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	err := s.server.Close()
	<-s.served
	s.handling.Wait()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	return err
}

// Handler answers the questions.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		step, open := s.next()
		if !open {
			panic(http.ErrAbortHandler)
		}
		defer s.handling.Done()
		q := Question{Method: r.Method, Path: r.URL.Path, Header: r.Header.Clone()}
		if !step.early {
			sum := sha256.New()
			n, err := io.Copy(sum, r.Body)
			q.Size, q.SHA256, q.Whole = n, [32]byte(sum.Sum(nil)), err == nil
		}
		s.keep(q)
		if !step.early && !q.Whole {
			panic(http.ErrAbortHandler) // who asks has given up
		}
		step.do(w, r, s.closing)
	})
}

// next takes a step, and counts who does it until Done.
func (s *Server) next() (Step, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return Step{}, false
	}
	s.handling.Add(1)
	if len(s.script) == 0 {
		return s.rest, true
	}
	step := s.script[0]
	s.script = s.script[1:]
	return step, true
}

func (s *Server) keep(q Question) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, q)
	close(s.asked)
	s.asked = make(chan struct{})
}
