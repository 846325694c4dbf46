// Package transporttest is the contract of package transport as a test: whatever
// implements transport.Transport passes Suite.
//
// It decides what every channel owes its caller; it assumes a Fixture that can
// put a peer into each Mood over real sockets. A failure names the clause of the
// contract that was broken.
package transporttest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/transport"
)

// Mood is how the peer treats what it is sent.
type Mood string

const (
	Friendly Mood = "friendly" // takes every message and says so
	Refusing Mood = "refusing" // takes none and says so
	Babbling Mood = "babbling" // refuses with a text far beyond delivery.MaxText that repeats our secrets
	Silent   Mood = "silent"   // takes the message and never answers
	Gone     Mood = "gone"     // takes the message and hangs up without an answer
)

// Peer is a transport with the peer that it talks to.
type Peer struct {
	Transport transport.Transport      // closed by the suite
	Message   func() transport.Message // a new one, for the mood; Proceed is the suite's
	Arrived   func() int               // messages that the peer has taken so far
	Secrets   []string                 // what no outcome may contain
}

// Fixture starts a peer in a mood; the peer ends with t.Cleanup.
type Fixture struct {
	New func(t *testing.T, m Mood) Peer
}

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// Suite checks the contract. Call it from a test that is not itself parallel,
// since the search for leaked goroutines must not see those of others; the
// clauses behind it run in parallel.
func Suite(t *testing.T, f Fixture) {
	t.Run("leaves no goroutine", func(t *testing.T) { leavesNoGoroutine(t, f) })
	for _, c := range []struct {
		clause string
		check  func(*testing.T, Fixture)
	}{
		{"the zero outcome is unknown", zeroIsUnknown},
		{"an accepted message is accepted once", accepted},
		{"a refusal is known and classified", refused},
		{"texts are bounded and tell no secret", babbled},
		{"no answer is unknown", silent},
		{"a lost answer is unknown", gone},
		{"Proceed stops the send", proceedStops},
		{"a ctx cancelled before is Interrupted", cancelledBefore},
		{"a ctx timed out before is a transient refusal", timedOutBefore},
		{"sends may be concurrent", concurrent},
		{"Close waits", closeWaits},
		{"Close is idempotent and lets nothing begin", closeTwice},
	} {
		t.Run(c.clause, func(t *testing.T) {
			t.Parallel()
			c.check(t, f)
		})
	}
}

// start returns a peer whose transport is closed at the end of the test.
func start(t *testing.T, f Fixture, m Mood) Peer {
	t.Helper()
	p := f.New(t, m)
	t.Cleanup(func() { closeSoon(t, p.Transport) })
	return p
}

func closeSoon(t *testing.T, tr transport.Transport) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- tr.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Close: %v", err)
		}
	case <-time.After(patience):
		t.Error("Close does not return")
	}
}

// send sends one message and checks what holds for every outcome. It returns how
// often Proceed was asked.
func send(ctx context.Context, t *testing.T, p Peer, proceed func() error) (delivery.Outcome, int) {
	t.Helper()
	var asked atomic.Int32
	m := p.Message()
	m.Proceed = func() error {
		asked.Add(1)
		if proceed != nil {
			return proceed()
		}
		return nil
	}
	out := p.Transport.Send(ctx, m)
	always(t, p, m, out)
	return out, int(asked.Load())
}

// always holds for each outcome, whatever happened.
func always(t *testing.T, p Peer, m transport.Message, out delivery.Outcome) {
	t.Helper()
	all := fmt.Sprintf("%+v", out)
	for _, s := range p.Secrets {
		if s != "" && strings.Contains(all, s) {
			t.Error("the outcome tells a secret")
		}
	}
	answers := []delivery.Answer{out.Answer}
	waiting := map[int]bool{}
	for _, r := range m.Recipients {
		waiting[r.Ordinal] = true
	}
	for _, r := range out.Recipients {
		answers = append(answers, r.Answer)
		if !waiting[r.Ordinal] {
			t.Errorf("recipient %d is answered but did not wait, or is answered twice", r.Ordinal)
		}
		delete(waiting, r.Ordinal)
	}
	if len(out.Recipients) > 0 && len(waiting) > 0 {
		t.Errorf("%d recipients have no outcome while others do", len(waiting))
	}
	for _, a := range answers {
		if len(a.Text) > delivery.MaxText || !utf8.ValidString(a.Text) || strings.ContainsAny(a.Text, "\x00\r\n") {
			t.Errorf("the text of an answer cannot be stored: %.80q", a.Text)
		}
	}
	switch out.Verdict {
	case delivery.Refused:
		if out.Answer.Category == delivery.NoCategory {
			t.Errorf("a refusal without a category: %s", all)
		}
	case delivery.Unknown, delivery.Accepted, delivery.Interrupted:
	default:
		t.Errorf("%q is no verdict", out.Verdict)
	}
	if out.RetryAfter < 0 {
		t.Errorf("RetryAfter %s", out.RetryAfter)
	}
}

func want(t *testing.T, out delivery.Outcome, v delivery.Verdict) {
	t.Helper()
	if out.Verdict != v {
		t.Errorf("verdict %s, want %s: %+v", out.Verdict, v, out)
	}
}

func wantArrived(t *testing.T, p Peer, n int) {
	t.Helper()
	if got := p.Arrived(); got != n {
		t.Errorf("the peer has taken %d messages, want %d", got, n)
	}
}

// eventually polls until ok, with a deadline.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("it does not happen: %s", what)
		}
	}
}
