package verifytest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/document"
)

// Step answers one question. The document has been read, unless the step says
// otherwise.
type Step struct {
	early bool // answer before the document is read
	do    func(w http.ResponseWriter, r *http.Request, closing <-chan struct{})
}

// Pass has no objection; issues may be warnings.
func Pass(issues ...document.Issue) Step {
	return Say(http.StatusOK, document.VerdictPassed, issues...)
}

// Reject rejects with the issues.
func Reject(issues ...document.Issue) Step {
	return Say(http.StatusOK, document.VerdictRejected, issues...)
}

// Broken is an issue to reject with.
func Broken() document.Issue {
	return document.Issue{Code: "BR-CO-15", Severity: document.BV, Text: "the total is not the sum of the lines", Location: "/Invoice/LegalMonetaryTotal"}
}

// Say answers in the agreed form, under any status and with any verdict.
func Say(status int, verdict document.Verdict, issues ...document.Issue) Step {
	body, err := json.Marshal(map[string]any{"verdict": verdict, "issues": issues})
	if err != nil {
		body = []byte(err.Error()) // an issue always encodes
	}
	return Answer(status, string(body))
}

// Answer answers with any body.
func Answer(status int, body string) Step {
	return Step{do: func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body)) // who asks may be gone
	}}
}

// Fail answers with an error status.
func Fail(status int) Step { return Answer(status, http.StatusText(status)) }

// Busy answers with a status and Retry-After in seconds.
func Busy(status int, after time.Duration) Step {
	return Step{do: func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		w.Header().Set("Retry-After", strconv.Itoa(int(after/time.Second)))
		w.WriteHeader(status)
	}}
}

// Redirect sends elsewhere.
func Redirect(to string) Step {
	return Step{do: func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusTemporaryRedirect)
	}}
}

// Garbage answers 200 with what no verifier says.
func Garbage() Step { return Answer(http.StatusOK, "<html>welcome to the hotel</html>") }

// Huge answers with a valid pass of about size bytes.
func Huge(size int) Step {
	return Answer(http.StatusOK, `{"verdict":"passed","padding":"`+strings.Repeat("x", size)+`"}`)
}

// Cut breaks the connection in the middle of a valid answer.
func Cut() Step {
	return Step{do: func(w http.ResponseWriter, _ *http.Request, _ <-chan struct{}) {
		w.Header().Set("Content-Length", "1000")
		_, _ = w.Write([]byte(`{"verdict":"passed"`))
		panic(http.ErrAbortHandler)
	}}
}

// Drop breaks the connection without an answer.
func Drop() Step {
	return Step{do: func(http.ResponseWriter, *http.Request, <-chan struct{}) { panic(http.ErrAbortHandler) }}
}

// Hang never answers.
func Hang() Step {
	return Step{do: func(_ http.ResponseWriter, r *http.Request, closing <-chan struct{}) {
		select {
		case <-r.Context().Done():
		case <-closing:
		}
		panic(http.ErrAbortHandler)
	}}
}

// Slow waits and then does the other step.
func Slow(wait time.Duration, then Step) Step {
	return Step{early: then.early, do: func(w http.ResponseWriter, r *http.Request, closing <-chan struct{}) {
		t := time.NewTimer(wait)
		defer t.Stop()
		select {
		case <-t.C:
			then.do(w, r, closing)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		case <-closing:
			panic(http.ErrAbortHandler)
		}
	}}
}

// Early does the step before anything of the document was read. The connection
// ends with the step, so of a large document the answer itself may be lost.
func Early(s Step) Step {
	s.early = true
	return s
}

// Times is the step n times, for a script.
func Times(n int, s Step) []Step {
	steps := make([]Step, n)
	for i := range steps {
		steps[i] = s
	}
	return steps
}
