package verify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/posthouse-io/posthouse/pkg/document"
)

// MaxAnswer bounds the answer of a verifier that is read, in bytes.
const MaxAnswer = 512 << 10

// Answer is what a verifier says:
//
//	{"verdict": "rejected", "issues": [
//	  {"code": "BR-CO-15", "severity": "BV", "text": "the sum is wrong", "location": "/Invoice/..."}]}
//
// verdict is passed or rejected, or unavailable when the verifier itself could not
// look. severity is SV (syntax), BV (fatal business rule) or BW (warning). Other
// fields are the verifier's own business.
type Answer struct {
	Verdict document.Verdict
	Issues  []document.Issue // bounded in text, not in number
}

// ParseAnswer reads one JSON object. Whatever is not as agreed is an error, which
// never repeats the answer: a verdict of another language must not pass, and a
// pass with a fatal issue is a contradiction.
func ParseAnswer(b []byte) (Answer, error) {
	if len(b) > MaxAnswer {
		return Answer{}, fmt.Errorf("the answer is longer than %d bytes", MaxAnswer)
	}
	// A pointer, so that null is told from an object.
	var wire *struct {
		Verdict string           `json:"verdict"`
		Issues  []document.Issue `json:"issues"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	if err := dec.Decode(&wire); err != nil || wire == nil {
		return Answer{}, errors.New("the answer is not the JSON object that was agreed on")
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Answer{}, errors.New("there is more after the JSON object of the answer")
	}
	a := Answer{Verdict: document.Verdict(wire.Verdict)}
	switch a.Verdict {
	case document.VerdictPassed, document.VerdictRejected, document.VerdictUnavailable:
	default:
		return Answer{}, errors.New("the verdict of the answer is none of passed, rejected, unavailable")
	}
	for i, issue := range wire.Issues {
		switch issue.Severity {
		case document.SV, document.BV, document.BW:
		default:
			return Answer{}, fmt.Errorf("the severity of issue %d of the answer is none of SV, BV, BW", i+1)
		}
		if issue.Fatal() && a.Verdict == document.VerdictPassed {
			return Answer{}, fmt.Errorf("the answer passes the document, and issue %d is fatal", i+1)
		}
		a.Issues = append(a.Issues, issue.Bounded())
	}
	return a, nil
}
