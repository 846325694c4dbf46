package http

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	nethttp "net/http"
	"strconv"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/forward"
	"github.com/posthouse-io/posthouse/pkg/forward/guard"
)

// maxRetryAfter bounds what a backend may ask for; a longer wait is a typing
// mistake or an attack.
const maxRetryAfter = 24 * time.Hour

// reply is what came back.
type reply struct {
	status     int
	retryAfter string
	body       []byte // at most forward.MaxAnswer + 1 bytes
	err        error  // why the body ends early
	whole      bool   // the backend had the whole document
	secrets    []string
}

// outcome classifies a reply. now is for a Retry-After that is a date.
func (r reply) outcome(mode Mode, now time.Time) forward.Outcome {
	out := r.verdict(mode)
	out.Confirmed = out.Verdict != delivery.Unknown
	if r.status == 429 || r.status == 503 {
		out.RetryAfter = parseRetryAfter(r.retryAfter, now)
	}
	if out.NoRetry {
		out.RetryAfter = 0
	}
	return out
}

func (r reply) verdict(mode Mode) forward.Outcome {
	code := "HTTP_" + strconv.Itoa(r.status)
	if r.status < 200 || r.status > 299 {
		out := forward.Refused(categoryOf(r.status), forward.PhaseFinal, code, r.text(), onServer(r.status))
		// The seed's backends say it in a success only; said in a failure it means the
		// same.
		if a, err := forward.ParseAnswer(r.body); err == nil && r.err == nil && a.NoRetry {
			out.NoRetry, out.Answer.Category, out.Server = true, delivery.Permanent, false
		}
		return out
	}
	switch {
	case !r.whole:
		return forward.Refused(delivery.Transient, forward.PhaseUpload, forward.CodeEarly, "success was told before the document had arrived", true)
	case mode == Async:
		return forward.Delivered("", "")
	case r.err != nil:
		return forward.Unsure(forward.CodeLost, "the answer breaks off: "+forward.Reason(r.err))
	case len(strings.TrimSpace(string(r.body))) == 0:
		return forward.Delivered("", "")
	}
	a, err := forward.ParseAnswer(r.body)
	switch {
	case err != nil:
		// A sign-in page of a proxy comes with 200, too.
		return forward.Unsure(forward.CodeAnswer, err.Error())
	case a.NoRetry:
		out := forward.Refused(delivery.Permanent, forward.PhaseFinal, forward.CodeNoRetry, r.hide(a.Message), false)
		out.NoRetry = true
		return out
	}
	out := forward.Delivered("", "")
	out.C4Country = a.C4Country
	return out
}

// text is what the backend says about its refusal: the message of the agreed
// answer, or nothing. A free text could repeat the document.
func (r reply) text() string {
	if a, err := forward.ParseAnswer(r.body); err == nil && a.Message != "" {
		return r.hide(a.Message)
	}
	return nethttp.StatusText(r.status)
}

// hide blots out our secrets, which a backend may repeat.
func (r reply) hide(text string) string {
	for _, s := range r.secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, "***")
		}
	}
	return text
}

func categoryOf(status int) delivery.Category {
	switch {
	case status == 408 || status == 425 || status >= 500:
		return delivery.Transient
	case status == 429:
		return delivery.Quota
	case status == 401 || status == 403 || status == 407:
		return delivery.Auth
	case status < 400 || status == 404 || status == 405 || status == 410 || status == 421:
		return delivery.Config
	case status == 400 || status == 411 || status == 413 || status == 415 || status == 422:
		return delivery.InvalidInput
	case status == 451:
		return delivery.Policy
	}
	return delivery.Permanent
}

// onServer tells a status about the backend from one about the document.
func onServer(status int) bool {
	switch categoryOf(status) {
	case delivery.Transient, delivery.Quota, delivery.Auth, delivery.Config:
		return true
	}
	return false
}

// parseRetryAfter reads seconds or an HTTP date (RFC 9110, 10.2.3); 0 when it is
// neither or over.
func parseRetryAfter(s string, now time.Time) time.Duration {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0
	}
	if strings.Trim(s, "0123456789") == "" {
		seconds, err := strconv.ParseInt(s, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := nethttp.ParseTime(s)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// refusedBefore classifies an error from before the last byte was handed over.
func refusedBefore(err error, connected bool) forward.Outcome {
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.Is(err, guard.ErrAddress):
		return forward.Refused(delivery.Config, forward.PhaseDial, forward.CodeAddress, forward.Reason(err), true)
	case errors.As(err, &certificate) || errors.As(err, &record) || errors.As(err, &alert) || errors.As(err, &unknown):
		return forward.Refused(delivery.Transient, forward.PhaseDial, forward.CodeTLS, forward.Reason(err), true)
	case !connected:
		return forward.Refused(delivery.Transient, forward.PhaseDial, forward.CodeDial, forward.Reason(err), true)
	}
	return forward.Refused(delivery.Transient, forward.PhaseUpload, forward.CodeLost, forward.Reason(err), true)
}
