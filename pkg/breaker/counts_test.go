package breaker

import (
	"testing"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

func TestWhatCounts(t *testing.T) {
	t.Parallel()
	answer := func(c delivery.Category, code, enhanced string) delivery.Answer {
		return delivery.Answer{Category: c, Code: code, Enhanced: enhanced}
	}
	for name, c := range map[string]struct {
		o    delivery.Outcome
		want Result
	}{
		"accepted":                                {delivery.Outcome{Verdict: delivery.Accepted}, Success},
		"a recipient that does not exist":         {delivery.Outcome{Verdict: delivery.Refused, Answer: answer(delivery.Permanent, "550", "5.1.1")}, Success},
		"content that is refused":                 {delivery.Outcome{Verdict: delivery.Refused, Answer: answer(delivery.Policy, "554", "5.7.1")}, Success},
		"a greylisted recipient":                  {delivery.Outcome{Verdict: delivery.Refused, Answer: answer(delivery.Transient, "451", "4.7.1")}, Success},
		"no connection":                           {delivery.Outcome{Verdict: delivery.Refused, Server: true, Answer: answer(delivery.Transient, "DIAL_FAILED", "")}, Failure},
		"a server that closes":                    {delivery.Outcome{Verdict: delivery.Refused, Server: true, Answer: answer(delivery.Transient, "421", "4.3.2")}, Failure},
		"a server that throttles":                 {delivery.Outcome{Verdict: delivery.Refused, Server: true, Answer: answer(delivery.Transient, "421", "4.7.0")}, Throttle},
		"a provider that throttles":               {delivery.Outcome{Verdict: delivery.Refused, Answer: answer(delivery.Quota, "HTTP_429", "")}, Throttle},
		"refused credentials":                     {delivery.Outcome{Verdict: delivery.Refused, Server: true, Answer: answer(delivery.Auth, "535", "5.7.8")}, Refusal},
		"our own configuration":                   {delivery.Outcome{Verdict: delivery.Refused, Server: true, Answer: answer(delivery.Config, "X", "")}, Excluded},
		"nobody knows":                            {delivery.Outcome{}, Failure},
		"a verdict that nobody knows":             {delivery.Outcome{Verdict: "perhaps", Answer: answer(delivery.Permanent, "550", "5.1.1")}, Failure},
		"nobody knows, though it answered before": {delivery.Outcome{Answer: answer(delivery.Permanent, "550", "5.1.1")}, Failure},
		"an address that can not be":              {delivery.Outcome{Verdict: delivery.Refused, Answer: answer(delivery.InvalidInput, "553", "5.1.3")}, Success},
		"a server error":                          {delivery.Outcome{Verdict: delivery.Refused, Server: true, Answer: answer(delivery.Transient, "HTTP_503", "")}, Failure},
		"we stopped":                              {delivery.Outcome{Verdict: delivery.Interrupted}, Excluded},
		"refused, and nobody said why, by it":     {delivery.Outcome{Verdict: delivery.Refused, Server: true}, Failure},
		"refused, unclassified, of this message":  {delivery.Outcome{Verdict: delivery.Refused, Answer: answer(delivery.Unclassified, "", "")}, Success},
	} {
		if got := Judge(c.o); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
