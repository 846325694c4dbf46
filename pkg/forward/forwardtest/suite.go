// Package forwardtest is the contract of package forward as a test: whatever
// implements forward.Forwarder passes Suite.
//
// It decides what every way owes its caller; it assumes a Fixture that can put a
// backend into the moods it names, over real sockets or files. What it checks of
// an outcome is its truth: Accepted only for what the backend has, Refused and
// Interrupted only for what it has not. A failure names the clause.
package forwardtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
)

// Mood is how the backend treats what it is sent.
type Mood string

const (
	Friendly Mood = "friendly" // takes every document and says so
	Refusing Mood = "refusing" // takes none and says so
	Babbling Mood = "babbling" // refuses with a text far beyond delivery.MaxText that repeats our secrets
	Silent   Mood = "silent"   // takes the document and never answers
	Gone     Mood = "gone"     // takes the document and hangs up without an answer
	Away     Mood = "away"     // is not there
)

// Stored is one document that the backend has where it would look for it.
type Stored struct {
	Name   string // path, key or idempotency key
	Size   int64
	SHA256 [32]byte
}

// Peer is a forwarder with the backend that it talks to.
type Peer struct {
	Forwarder forward.Forwarder       // closed by the suite
	Stored    func() []Stored         // all that the backend has, each name once
	Litter    func() []string         // what lies around beside it: hidden files, things outside the folder
	Secrets   []string                // what no outcome may contain
	Alter     func(*forward.Document) // changes a document before it is forwarded; may be nil
}

// Fixture starts a backend in a mood; it ends with t.Cleanup.
type Fixture struct {
	New     func(t *testing.T, m Mood) Peer
	Moods   []Mood // those that it can be put into; Friendly is always one
	MaxSize int64  // largest document, 0 for no limit
	Memory  int64  // bytes that a document of 50 MB may need at its highest, 0 for 16 MiB
	Asks    int    // how often Proceed is asked for one delivery, 0 for once
}

// patience bounds every wait for something that must happen.
const patience = 20 * time.Second

// Suite checks the contract. Call it from a test that is not itself parallel,
// since the search for leaked goroutines and the measuring of memory must not see
// others; the clauses behind them run in parallel.
func Suite(t *testing.T, f Fixture) {
	t.Run("leaves no goroutine", func(t *testing.T) { leavesNoGoroutine(t, f) })
	t.Run("a large document needs little memory", func(t *testing.T) { large(t, f) })
	for _, c := range []struct {
		clause string
		mood   Mood
		check  func(*testing.T, Fixture)
	}{
		{"a document is delivered once and whole", Friendly, delivered},
		{"a repeat leaves one copy", Friendly, repeated},
		{"two at once under one id leave one whole copy", Friendly, doubled},
		{"Proceed stops the forward", Friendly, proceedStops},
		{"a ctx cancelled before is Interrupted", Friendly, cancelledBefore},
		{"a ctx timed out before is a transient refusal", Friendly, timedOutBefore},
		{"a ctx cancelled while the payload is read is Interrupted", Friendly, cancelledReading},
		{"a payload that cannot be opened is not delivered", Friendly, unopened},
		{"a payload that breaks off is not delivered", Friendly, brokenOff},
		{"a payload that does not match is not delivered", Friendly, mismatched},
		{"an incomplete document is refused", Friendly, incomplete},
		{"foreign ids stay inside and apart", Friendly, hostileIDs},
		{"forwards may be concurrent", Friendly, concurrent},
		{"Close waits", Friendly, closeWaits},
		{"Close is idempotent and lets nothing begin", Friendly, closeTwice},
		{"a refusal is known and classified", Refusing, refused},
		{"texts are bounded and tell no secret", Babbling, babbled},
		{"no answer is unknown", Silent, silent},
		{"a lost answer is unknown", Gone, gone},
		{"a backend that is away is a transient refusal", Away, away},
	} {
		if c.mood != Friendly && !slices.Contains(f.Moods, c.mood) {
			continue
		}
		t.Run(c.clause, func(t *testing.T) {
			t.Parallel()
			c.check(t, f)
		})
	}
}

// start returns a peer whose forwarder is closed at the end of the test.
func start(t *testing.T, f Fixture, m Mood) Peer {
	t.Helper()
	p := f.New(t, m)
	t.Cleanup(func() { closeSoon(t, p.Forwarder) })
	return p
}

func closeSoon(t *testing.T, f forward.Forwarder) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("Close: %v", err)
		}
	case <-time.After(patience):
		t.Error("Close does not return")
	}
}

// send forwards one document and checks what holds for every outcome. It returns
// how often Proceed was asked.
func send(ctx context.Context, t *testing.T, p Peer, d forward.Document) (forward.Outcome, int) {
	t.Helper()
	if p.Alter != nil {
		p.Alter(&d)
	}
	var asked atomic.Int32
	if inner := d.Proceed; inner != nil {
		d.Proceed = func() error {
			asked.Add(1)
			return inner()
		}
	}
	out := p.Forwarder.Forward(ctx, d)
	always(t, p, d, out)
	return out, int(asked.Load())
}

// always holds for each outcome, whatever happened.
func always(t *testing.T, p Peer, d forward.Document, out forward.Outcome) {
	t.Helper()
	all := fmt.Sprintf("%+v", out)
	for _, s := range p.Secrets {
		if s != "" && strings.Contains(all, s) {
			t.Error("the outcome tells a secret")
		}
	}
	if strings.Contains(all, marker) {
		t.Error("the outcome tells some of the payload")
	}
	a := out.Answer
	if len(a.Text) > delivery.MaxText || len(a.Code) > delivery.MaxText || !utf8.ValidString(a.Text) || strings.ContainsAny(a.Text+a.Code, "\r\n\x00") {
		t.Errorf("the answer is not fit to be stored: %.200q", a)
	}
	switch out.Verdict {
	case delivery.Accepted:
		if a.Category != delivery.NoCategory || out.NoRetry {
			t.Errorf("a delivery with a failure: %+v", out)
		}
	case delivery.Refused:
		if a.Category == delivery.NoCategory || a.Phase == "" || a.Code == "" {
			t.Errorf("a refusal without category, phase or code: %+v", out)
		}
		if out.NoRetry && a.Category.Retryable() {
			t.Errorf("a refusal that forbids another attempt and is retryable: %+v", out)
		}
	case delivery.Interrupted:
		if out.Server {
			t.Errorf("our own stop counts against the server: %+v", out)
		}
	case delivery.Unknown:
	default:
		t.Errorf("verdict %q", out.Verdict)
	}
	if c := out.C4Country; c != "" && (len(c) != 2 || out.Verdict != delivery.Accepted) {
		t.Errorf("country %q with %s", c, out.Verdict)
	}
}

func want(t *testing.T, out forward.Outcome, v delivery.Verdict) {
	t.Helper()
	if out.Verdict != v {
		t.Fatalf("%s, want %s: %+v", out.Verdict, v, out)
	}
}

// wantStored checks that the backend has these documents and nothing else.
func wantStored(t *testing.T, p Peer, docs ...forward.Document) {
	t.Helper()
	left := map[[32]byte]int{}
	for _, d := range docs {
		left[d.SHA256]++
	}
	for _, s := range p.Stored() {
		if left[s.SHA256] == 0 {
			t.Errorf("the backend has %q of %d bytes, which it should not", s.Name, s.Size)
		}
		left[s.SHA256]--
	}
	for _, n := range left {
		if n > 0 {
			t.Errorf("the backend lacks %d of %d documents", n, len(docs))
		}
	}
}

// wantTidy checks that nothing else lies around.
func wantTidy(t *testing.T, p Peer) {
	t.Helper()
	if p.Litter == nil {
		return
	}
	if l := p.Litter(); len(l) > 0 {
		t.Errorf("left behind: %q", l)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
