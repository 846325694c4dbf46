package forward

import (
	"encoding/json"
	"fmt"
	"strings"
)

// MaxAnswer bounds the answer of a backend that is read, in bytes.
const MaxAnswer = 64 << 10

// Answer is what a backend says about a document, in the words of the seed:
//
//	{"countryCodeC4": "AT"}                          taken; the receiver's country, if known
//	{"retry": "none", "errorMessage": "no customer"} not taken, now or ever
//
// Other fields are the backend's own business.
type Answer struct {
	C4Country string // two capitals, or empty
	NoRetry   bool
	Message   string // not bounded yet
}

// ParseAnswer reads a JSON object. A country that is no code is left out, since
// a typing mistake must not turn a delivery into a failure.
func ParseAnswer(b []byte) (Answer, error) {
	if len(b) > MaxAnswer {
		return Answer{}, fmt.Errorf("the answer is longer than %d bytes", MaxAnswer)
	}
	// A pointer, so that null is told from an object.
	var wire *struct {
		Country *string `json:"countryCodeC4"`
		Retry   *string `json:"retry"`
		Message *string `json:"errorMessage"`
	}
	if err := json.Unmarshal(b, &wire); err != nil {
		// The error of the package would repeat bytes of the answer.
		return Answer{}, fmt.Errorf("the answer is not the JSON object that was agreed on")
	}
	if wire == nil {
		return Answer{}, fmt.Errorf("the answer is null")
	}
	var a Answer
	if wire.Country != nil {
		if c := strings.ToUpper(strings.TrimSpace(*wire.Country)); len(c) == 2 && capital(c[0]) && capital(c[1]) {
			a.C4Country = c
		}
	}
	a.NoRetry = wire.Retry != nil && strings.EqualFold(strings.TrimSpace(*wire.Retry), "none")
	if wire.Message != nil {
		a.Message = *wire.Message
	}
	return a, nil
}

func capital(c byte) bool { return c >= 'A' && c <= 'Z' }
