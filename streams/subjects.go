package streams

import (
	"fmt"
	"strings"
)

// This file is the only one in the project that spells a subject.
//
//	posthouse.send.<channel>.<tenant>                  stream POSTHOUSE_REQUESTS
//	posthouse.inbound.document.<tenant>                stream POSTHOUSE_REQUESTS
//	posthouse.event.<kind>.<state>.<channel>.<tenant>  stream POSTHOUSE_EVENTS
//	posthouse.dlq.<source>.<channel>.<tenant>          stream POSTHOUSE_DLQ
//	posthouse.ops.<service>.<verb>                     request and reply, no stream
//	posthouse.ops.<service>.<verb>.each                the same, answered by each instance
//	posthouse.doorbell.<kind>                          core NATS, no stream
//
// Why the tenant comes last: permissions of the server then read
// posthouse.send.*.acme, whatever channels there will be.

const (
	root     = "posthouse."
	send     = root + "send."
	inbound  = root + "inbound.document."
	event    = root + "event."
	dlq      = root + "dlq."
	ops      = root + "ops."
	doorbell = root + "doorbell."
)

// None stands where a token has no value.
const None = "_"

// MaxToken is the longest token in bytes.
const MaxToken = 64

// Kind is what an event is about.
type Kind string

// The closed set of event kinds.
const (
	KindDelivery Kind = "delivery"
	KindDocument Kind = "document"
	KindLane     Kind = "lane"
	KindQuota    Kind = "quota"
	KindAlert    Kind = "alert"
)

// Kinds lists every event kind.
func Kinds() []Kind { return []Kind{KindDelivery, KindDocument, KindLane, KindQuota, KindAlert} }

// Source says why something is on the dead-letter subject.
type Source string

// The closed set of dead-letter sources.
const (
	SendExhausted    Source = "send_exhausted"    // attempts or time used up
	SendFailed       Source = "send_failed"       // final at once
	ForwardExhausted Source = "forward_exhausted" // an inbound document the backend never took
	Rejected         Source = "rejected"          // an inbound document that failed verification
	Expired          Source = "expired"           // too late
	Held             Source = "held"              // waits for a person
	Poison           Source = "poison"            // could not be read at all
	MLSOverdue       Source = "mls_overdue"       // no answer to C2 in time
)

// Sources lists every dead-letter source.
func Sources() []Source {
	return []Source{SendExhausted, SendFailed, ForwardExhausted, Rejected, Expired, Held, Poison, MLSOverdue}
}

// Token tells whether s may stand between two dots: [A-Za-z0-9_-]{1,64}.
func Token(s string) bool {
	if len(s) == 0 || len(s) > MaxToken {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// The constructors write an empty value as None. When a value is no Token they
// return "", a subject that every NATS call refuses: a dot or a wildcard in a
// tenant can never widen what a message reaches.

// Send is the subject of a request to send over channel for tenant.
func Send(channel, tenant string) string { return join(send, channel, tenant) }

// Inbound is the subject of an inbound document for tenant.
func Inbound(tenant string) string { return join(inbound, tenant) }

// Event is the subject of a change of state.
func Event(kind Kind, state, channel, tenant string) string {
	return join(event, string(kind), state, channel, tenant)
}

// DLQ is the subject of a dead letter.
func DLQ(source Source, channel, tenant string) string {
	return join(dlq, string(source), channel, tenant)
}

// Ops is the subject of one operation of a service.
func Ops(service, verb string) string { return join(ops, service, verb) }

// OpsEach is the subject of an operation that each instance of a service answers: one
// of its own, since an account that exports it must allow more than one answer.
func OpsEach(service, verb string) string {
	s := Ops(service, verb)
	if s == "" {
		return ""
	}
	return s + ".each"
}

// Doorbell is the core subject that wakes whoever waits for work of that kind.
func Doorbell(kind string) string { return join(doorbell, kind) }

// AllSend, AllInbound, AllEvents, AllDLQ and AllOps match every subject of their
// family and nothing else.
func AllSend() string { return send + "*.*" }

// AllInbound matches every inbound document.
func AllInbound() string { return inbound + "*" }

// AllEvents matches every event.
func AllEvents() string { return event + "*.*.*.*" }

// AllDLQ matches every dead letter.
func AllDLQ() string { return dlq + "*.*.*" }

// AllOps matches every operation.
func AllOps() string { return ops + "*.*" }

// EventsOf matches the events of one kind in one state, of any channel and
// tenant; an empty state means any.
func EventsOf(kind Kind, state string) string { return EventFilter(kind, state, "", "") }

// EventFilter matches the events of one kind; an empty state, channel or tenant
// means any. A value that is no token gives "", which every NATS call refuses.
func EventFilter(kind Kind, state, channel, tenant string) string {
	filter := event + string(kind)
	if !Token(string(kind)) {
		return ""
	}
	for _, t := range []string{state, channel, tenant} {
		switch {
		case t == "":
			filter += ".*"
		case Token(t):
			filter += "." + t
		default:
			return ""
		}
	}
	return filter
}

// EventSubject is a parsed event subject. None is kept as it stands.
type EventSubject struct {
	Kind                   Kind
	State, Channel, Tenant string
}

// DLQSubject is a parsed dead-letter subject.
type DLQSubject struct {
	Source          Source
	Channel, Tenant string
}

// ParseSend reads a subject that Send wrote.
func ParseSend(subject string) (channel, tenant string, err error) {
	t, err := split(subject, send, 2)
	if err != nil {
		return "", "", err
	}
	return t[0], t[1], nil
}

// ParseInbound reads a subject that Inbound wrote.
func ParseInbound(subject string) (tenant string, err error) {
	t, err := split(subject, inbound, 1)
	if err != nil {
		return "", err
	}
	return t[0], nil
}

// ParseEvent reads a subject that Event wrote; a kind outside Kinds is an error.
func ParseEvent(subject string) (EventSubject, error) {
	t, err := split(subject, event, 4)
	if err != nil {
		return EventSubject{}, err
	}
	for _, k := range Kinds() {
		if string(k) == t[0] {
			return EventSubject{k, t[1], t[2], t[3]}, nil
		}
	}
	return EventSubject{}, fmt.Errorf("subject %q: no such event kind", subject)
}

// ParseDLQ reads a subject that DLQ wrote; a source outside Sources is an error.
func ParseDLQ(subject string) (DLQSubject, error) {
	t, err := split(subject, dlq, 3)
	if err != nil {
		return DLQSubject{}, err
	}
	for _, s := range Sources() {
		if string(s) == t[0] {
			return DLQSubject{s, t[1], t[2]}, nil
		}
	}
	return DLQSubject{}, fmt.Errorf("subject %q: no such dead-letter source", subject)
}

// ParseOps reads a subject that Ops wrote.
func ParseOps(subject string) (service, verb string, err error) {
	t, err := split(subject, ops, 2)
	if err != nil {
		return "", "", err
	}
	return t[0], t[1], nil
}

// ParseDoorbell reads a subject that Doorbell wrote.
func ParseDoorbell(subject string) (kind string, err error) {
	t, err := split(subject, doorbell, 1)
	if err != nil {
		return "", err
	}
	return t[0], nil
}

func join(prefix string, tokens ...string) string {
	for i, t := range tokens {
		if t == "" {
			tokens[i] = None
		} else if !Token(t) {
			return ""
		}
	}
	return prefix + strings.Join(tokens, ".")
}

func split(subject, prefix string, arity int) ([]string, error) {
	rest, ok := strings.CutPrefix(subject, prefix)
	tokens := strings.SplitN(rest, ".", arity+1)
	if !ok || len(tokens) != arity {
		return nil, fmt.Errorf("subject %.80q is not %s with %d tokens", subject, prefix, arity)
	}
	for i, t := range tokens {
		if !Token(t) {
			return nil, fmt.Errorf("subject %.80q: token %d after %s is not [A-Za-z0-9_-]{1,%d}", subject, i+1, prefix, MaxToken)
		}
	}
	return tokens, nil
}
