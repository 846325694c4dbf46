package breaker

import (
	"strings"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Result is what one call says of its destination. The zero value counts as a
// failure: nobody said.
type Result string

const (
	Unsaid   Result = ""
	Success  Result = "success"
	Failure  Result = "failure"
	Excluded Result = "excluded" // we stopped before we knew
	Refusal  Result = "refusal"  // of our credentials
	Throttle Result = "throttle" // it works, and wants less: no failure
)

// Judge says what an outcome says of its destination, whatever it says of the
// delivery. A destination that answers works: a recipient that does not exist is
// an answer. What a server says of itself (server: the refusal concerns it and not
// this message) or does not say at all, is a failure.
func Judge(o delivery.Outcome) Result {
	switch o.Verdict {
	case delivery.Accepted:
		return Success
	case delivery.Interrupted:
		return Excluded
	case delivery.Refused:
		return judge(o)
	}
	return Failure // nobody knows
}

func judge(o delivery.Outcome) Result {
	if o.Answer.Code == "421" && strings.HasPrefix(o.Answer.Enhanced, "4.7.") {
		return Throttle
	}
	switch o.Answer.Category {
	case delivery.Quota:
		return Throttle
	case delivery.Auth:
		return Refusal
	case delivery.Config:
		return Excluded
	case delivery.Permanent, delivery.InvalidInput, delivery.Policy:
		return Success
	}
	if o.Server {
		return Failure
	}
	return Success
}
