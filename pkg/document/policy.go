package document

import (
	"errors"
	"fmt"
	"time"
)

// FailMode says what becomes of a document whose verifier is unavailable. Any
// other word is as closed.
type FailMode string

const (
	Closed       FailMode = "closed"   // rejected, with a negative MLS
	Open         FailMode = "open"     // forwarded as unverified
	DeferredMode FailMode = "deferred" // asked again until the time is over, then rejected
)

// RejectedForwarding says whether the backend gets a rejected document, for
// information and with its verdict. Any other word is as none.
type RejectedForwarding string

const (
	ForwardNone       RejectedForwarding = "none"
	ForwardBestEffort RejectedForwarding = "best-effort" // one attempt
	ForwardRetry      RejectedForwarding = "retry"       // as any other document
)

// Trigger says who gives the positive MLS of a forwarded document.
type Trigger string

const (
	TriggerAuto Trigger = "auto" // we, at once
	TriggerAPI  Trigger = "api"  // the backend, by the API; the watchdog instead of a silent one
)

// TypeSource says whose MLS_TYPE counts.
type TypeSource string

const (
	TypeOwn  TypeSource = "own"
	TypeSBDH TypeSource = "sbdh" // the sender's, where it gave one
)

// Policy is all that is configured about inbound documents, except the schedule
// of the attempts (package retry). Names and defaults are those of the seed where
// it has them.
type Policy struct {
	Verification bool               `env:"VERIFICATION_INBOUND_ENABLED" envDefault:"false" doc:"ask the verifiers about each inbound document"`
	FailMode     FailMode           `env:"VERIFICATION_VERIFIER_FAIL_MODE" envDefault:"closed" oneof:"closed|open|deferred" doc:"when a verifier is unavailable: closed rejects, open forwards unverified, deferred asks again"`
	RetryEvery   time.Duration      `env:"VERIFICATION_DEFERRED_RETRY_INTERVAL" envDefault:"5m" min:"1s" max:"24h" doc:"a deferred document is verified again after this time"`
	RetryFor     time.Duration      `env:"VERIFICATION_DEFERRED_MAX_DURATION" envDefault:"12h" min:"1s" max:"720h" doc:"a document that is still not verified this long after its reception is rejected"`
	Rejected     RejectedForwarding `env:"VERIFICATION_INBOUND_REJECTION_FORWARDING" envDefault:"none" oneof:"none|best-effort|retry" doc:"whether the backend gets rejected documents too: none, best-effort (one attempt) or retry"`

	PostponeFor time.Duration `env:"CIRCUIT_BREAKER_DEFER_MAX_DURATION" envDefault:"12h" min:"0s" max:"720h" doc:"up to this age of a document an open circuit breaker costs it no attempt"`

	MLS         bool          `env:"MLS_SENDING_ENABLED" envDefault:"true" doc:"answer inbound documents by MLS"`
	MLSType     MLSType       `env:"MLS_TYPE" envDefault:"ALWAYS_SEND" oneof:"ALWAYS_SEND|FAILURE_ONLY" doc:"ALWAYS_SEND, or FAILURE_ONLY: positive answers are recorded and not sent"`
	MLSTypeFrom TypeSource    `env:"MLS_TYPE_SOURCE" envDefault:"own" oneof:"own|sbdh" doc:"whose MLS type counts: own (MLS_TYPE), or that of the sender's SBDH, where it has one"`
	Trigger     Trigger       `env:"MLS_SENDING_TRIGGER" envDefault:"auto" oneof:"auto|api" doc:"auto: the positive MLS follows the forwarding; api: the backend gives it"`
	APITimeout  time.Duration `env:"MLS_SENDING_API_TIMEOUT" envDefault:"5m" min:"1s" max:"20m" doc:"with trigger api, a backend that is silent for this long after the reception is answered for"`
	APICode     Code          `env:"MLS_SENDING_API_TIMEOUT_CODE" envDefault:"AB" oneof:"AP|AB|RE" doc:"the answer that is given then"`
	RefusedCode Code          `env:"MLS_FORWARDING_REFUSED_CODE" envDefault:"AB" oneof:"AB|RE" doc:"the answer for a document that the backend will never take; RE tells of a failed delivery (FD)"`
}

// DefaultPolicy is what the tags above describe.
func DefaultPolicy() Policy {
	return Policy{FailMode: Closed, RetryEvery: 5 * time.Minute, RetryFor: 12 * time.Hour, Rejected: ForwardNone, PostponeFor: 12 * time.Hour,
		MLS: true, MLSType: AlwaysSend, MLSTypeFrom: TypeOwn, Trigger: TriggerAuto, APITimeout: 5 * time.Minute, APICode: AB, RefusedCode: AB}
}

// Validate names every fault at once, each by its variable.
func (p Policy) Validate() error {
	var faults []error
	for _, w := range []struct {
		name, value string
		words       []string
	}{
		{"VERIFICATION_VERIFIER_FAIL_MODE", string(p.FailMode), []string{string(Closed), string(Open), string(DeferredMode)}},
		{"VERIFICATION_INBOUND_REJECTION_FORWARDING", string(p.Rejected), []string{string(ForwardNone), string(ForwardBestEffort), string(ForwardRetry)}},
		{"MLS_TYPE", string(p.MLSType), []string{string(AlwaysSend), string(FailureOnly)}},
		{"MLS_TYPE_SOURCE", string(p.MLSTypeFrom), []string{string(TypeOwn), string(TypeSBDH)}},
		{"MLS_SENDING_TRIGGER", string(p.Trigger), []string{string(TriggerAuto), string(TriggerAPI)}},
		{"MLS_SENDING_API_TIMEOUT_CODE", string(p.APICode), []string{string(AP), string(AB), string(RE)}},
		{"MLS_FORWARDING_REFUSED_CODE", string(p.RefusedCode), []string{string(AB), string(RE)}},
	} {
		if !oneOf(w.value, w.words) {
			faults = append(faults, fmt.Errorf("%s: %.32q is none of %v", w.name, w.value, w.words))
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
		least time.Duration
	}{
		{"VERIFICATION_DEFERRED_RETRY_INTERVAL", p.RetryEvery, 1},
		{"VERIFICATION_DEFERRED_MAX_DURATION", p.RetryFor, 1},
		{"CIRCUIT_BREAKER_DEFER_MAX_DURATION", p.PostponeFor, 0},
		{"MLS_SENDING_API_TIMEOUT", p.APITimeout, 1},
	} {
		if d.value < d.least {
			faults = append(faults, fmt.Errorf("%s: %s is too short", d.name, d.value))
		}
	}
	if p.RetryEvery > p.RetryFor {
		faults = append(faults, fmt.Errorf("VERIFICATION_DEFERRED_RETRY_INTERVAL: %s is more than VERIFICATION_DEFERRED_MAX_DURATION (%s)", p.RetryEvery, p.RetryFor))
	}
	if p.APITimeout > MLS1().Limit {
		faults = append(faults, fmt.Errorf("MLS_SENDING_API_TIMEOUT: %s leaves nothing of the %s in which C2 must be answered", p.APITimeout, MLS1().Limit))
	}
	return errors.Join(faults...)
}

func oneOf(s string, words []string) bool {
	for _, w := range words {
		if s == w {
			return true
		}
	}
	return false
}
