package verify

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// Codes of results that no status tells.
const (
	CodeTimeout     = "TIMEOUT"
	CodeConnection  = "CONNECTION_FAILED" // or lost
	CodeAddress     = "ADDRESS_REFUSED"   // we do not connect to such an address
	CodeRedirect    = "REDIRECT_REFUSED"
	CodeAnswer      = "ANSWER_INVALID"
	CodeEarly       = "ANSWERED_EARLY" // passed before the last byte had left us
	CodeSays        = "VERIFIER_UNAVAILABLE"
	CodePayload     = "PAYLOAD_UNREADABLE" // ours
	CodeInterrupted = "INTERRUPTED"        // ours
)

// maxRetryAfter bounds what a verifier may ask for.
const maxRetryAfter = time.Hour

// reply is an HTTP answer, read.
type reply struct {
	status     int
	retryAfter string
	body       []byte
	err        error // of reading the body
	whole      bool  // the document was given away to its last byte
	token      string
}

// result is what the answer means.
func (r reply) result(now time.Time) document.Result {
	out := r.judge()
	if out.Verdict == document.VerdictUnavailable && (r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable) {
		out.RetryAfter = parseRetryAfter(r.retryAfter, now)
	}
	return out
}

func (r reply) judge() document.Result {
	switch {
	case r.status >= 200 && r.status < 300:
		a, out, ok := r.parse()
		switch {
		case !ok:
			return out
		case a.Verdict == document.VerdictUnavailable:
			return away(CodeSays, "the verifier says that it cannot look at the document")
		case a.Verdict == document.VerdictPassed && !r.whole:
			return away(CodeEarly, "the verifier passed the document before it had all of it")
		}
		return document.Result{Verdict: a.Verdict, Issues: r.hide(a.Issues)}
	case r.status >= 300 && r.status < 400:
		return away(CodeRedirect, "the verifier answered "+status(r.status)+": a document is not sent elsewhere")
	case r.status >= 400 && r.status < 500 && !ofTheWay(r.status):
		// Some verifiers reject with a 4xx. Without an answer in the agreed form it may as
		// well be a wrong path or a proxy, so it says nothing about the document.
		if a, _, ok := r.parse(); ok && a.Verdict == document.VerdictRejected {
			return document.Result{Verdict: a.Verdict, Issues: r.hide(a.Issues)}
		}
	}
	return away("HTTP_"+strconv.Itoa(r.status), "the verifier answered "+status(r.status))
}

// ofTheWay are the 4xx that tell of us, the path or the moment, and never of the
// document, whatever their body says.
func ofTheWay(code int) bool {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired, http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return false
}

func (r reply) parse() (Answer, document.Result, bool) {
	if r.err != nil {
		return Answer{}, away(CodeConnection, "the answer broke off"), false
	}
	a, err := ParseAnswer(r.body)
	if err != nil {
		return Answer{}, away(CodeAnswer, err.Error()), false
	}
	return a, document.Result{}, true
}

// hide keeps our token out of what is stored, should the verifier repeat it.
func (r reply) hide(issues []document.Issue) []document.Issue {
	if r.token == "" {
		return issues
	}
	for i := range issues {
		for _, s := range []*string{&issues[i].Code, &issues[i].Text, &issues[i].Location} {
			*s = strings.ReplaceAll(*s, r.token, "***")
		}
	}
	return issues
}

// away is a verifier that gave nothing to rely on.
func away(code, text string) document.Result {
	return document.Result{Verdict: document.VerdictUnavailable, Code: code, Text: delivery.Bound(text), Server: true}
}

// ours is a failure that says nothing of the verifier.
func ours(code, text string) document.Result {
	return document.Result{Code: code, Text: delivery.Bound(text), Ours: true, Interrupted: code == CodeInterrupted}
}

func status(code int) string {
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}

// parseRetryAfter reads seconds or an HTTP date (RFC 9110, 10.2.3); 0 when it is
// neither.
func parseRetryAfter(s string, now time.Time) time.Duration {
	s = strings.TrimSpace(s)
	if s != "" && strings.Trim(s, "0123456789") == "" {
		seconds, err := strconv.ParseInt(s, 10, 64)
		if err != nil || seconds > int64(maxRetryAfter/time.Second) {
			return maxRetryAfter
		}
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}
