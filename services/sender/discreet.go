package sender

import (
	"regexp"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// address finds mail addresses in a text, those with a quoted local part too.
var address = regexp.MustCompile(`("[^"@]*"|[^\s<>"(),;:]*)@[^\s<>"(),;:]+`)

// discreet takes mail addresses out of what the other side said. Most servers
// repeat the recipient, and these texts go into logs, events and dead letters;
// the address itself is in the book, beside the answer that it got.
func discreet(o delivery.Outcome) delivery.Outcome {
	o.Answer.Text = withoutAddresses(o.Answer.Text)
	for i := range o.Recipients {
		o.Recipients[i].Answer.Text = withoutAddresses(o.Recipients[i].Answer.Text)
	}
	return o
}

func withoutAddresses(text string) string { return address.ReplaceAllString(text, "[address]") }
