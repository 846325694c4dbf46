package breaker

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
)

// State is where a breaker stands.
type State string

const (
	Closed   State = "closed"
	Open     State = "open"
	HalfOpen State = "half_open"
)

// Gate is what is known of a lane, from its row.
type Gate struct {
	ID       int32
	Key      string // smp$<host>, ap$<endpoint>, forwarder, mail$<server>, sms$<provider>, webhook$<host>
	State    State
	Version  int32
	Until    time.Time // of an open one
	OpenedAt time.Time
	Failures int
	Cause    string // the last failure; the operator's reason, if Forced
	Forced   bool   // opened by an operator, for no failure
}

// Trip is what this instance has seen when it opens a lane.
type Trip struct {
	Gate     Gate
	Failures int
	Cause    string
	For      time.Duration
	Probes   int
	Parked   bool // the credentials are refused
}

// Store is the row of the lane. Each call returns what is true afterwards, whoever
// made it so, and whether this call did.
type Store interface {
	// Open opens a closed lane for t.For; one that is open or half open it leaves.
	Open(ctx context.Context, t Trip) (now Gate, changed bool, err error)
	// Probed counts the result of a probe that was claimed at the version of probe; of
	// an earlier half-open period it counts nothing.
	Probed(ctx context.Context, probe Gate, success bool, t Trip) (now Gate, changed bool, err error)
}

// Change is one change of state that this instance made.
type Change struct {
	From, To Gate
	Message  string // of the seed, for a log and a person; only when it opened
}

// maxCause bounds the last failure in a message, in runes.
const maxCause = 300

// Message is what an operator reads of a lane that is not closed: what, which
// target, state, since when, how long still, after how many failures, the last one
// (seed, "Rejection messages"). Of one that an operator has opened: the reason, since
// nothing has failed.
func Message(g Gate, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s suspended by circuit breaker (state %s", target(g.Key), strings.ToUpper(string(g.State)))
	if !g.OpenedAt.IsZero() {
		fmt.Fprintf(&b, " since %s", g.OpenedAt.UTC().Format(time.RFC3339))
	}
	if g.State == Open {
		fmt.Fprintf(&b, ", %ds remaining", int(max(0, g.Until.Sub(now)).Round(time.Second).Seconds()))
	}
	b.WriteString(")")
	cause := bound(g.Cause)
	if g.Forced {
		b.WriteString(", opened by an operator")
		if cause != "" {
			b.WriteString(": " + cause)
		}
		return b.String()
	}
	if g.Failures > 0 {
		fmt.Fprintf(&b, " after %d failures", g.Failures)
	}
	if cause != "" {
		b.WriteString("; last failure: " + cause)
	}
	return b.String()
}

func target(key string) string {
	kind, name, found := strings.Cut(key, "$")
	if !found {
		name = key
	}
	name = bound(name)
	switch kind {
	case "smp":
		return "SMP access to '" + name + "'"
	case "ap":
		return "AS4 sending to '" + name + "'"
	case "mail":
		return "Mail sending by '" + name + "'"
	case "sms":
		return "SMS sending by '" + name + "'"
	case "webhook":
		return "Webhook calls to '" + name + "'"
	case "verifier":
		return "Verification by '" + name + "'"
	case "forwarder":
		return "Forwarding to the receiver backend"
	}
	return "Sending by '" + bound(key) + "'"
}

// bound makes one line of a foreign text. What would turn the direction of the text
// or hide in it goes too: a person reads this.
func bound(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r):
			return ' '
		case unicode.Is(unicode.Cf, r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > maxCause {
		s = string(r[:maxCause-1]) + "…"
	}
	return s
}
