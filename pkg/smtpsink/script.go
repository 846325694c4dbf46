package smtpsink

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-smtp"
)

// script is what the local part of an address asks for.
type script struct {
	refusal *smtp.SMTPError // at RCPT, for the first tries
	tries   int             // how many tries are refused; 0: all of them
	final   *smtp.SMTPError // after the final dot
	silent  bool            // no reply after the final dot: stall, or with drop hang up
	drop    bool
	accept  bool          // a silent one takes the message all the same
	delay   time.Duration // before the acceptance
}

// maxDelay bounds slow-X@.
const maxDelay = 10 * time.Minute

func refusal(code int, e smtp.EnhancedCode, text string) *smtp.SMTPError {
	return &smtp.SMTPError{Code: code, EnhancedCode: e, Message: text}
}

// read turns an address into its script; the zero script accepts.
func read(address string) script {
	local, _, _ := strings.Cut(strings.ToLower(address), "@")
	local, _, _ = strings.Cut(local, "+")
	word, arg, _ := strings.Cut(local, "-")
	switch {
	case local == "greylist":
		return script{refusal: refusal(451, smtp.EnhancedCode{4, 7, 1}, "Greylisted, please try again in 300 seconds"), tries: 1}
	case local == "refuse":
		return script{refusal: refusal(550, smtp.EnhancedCode{5, 1, 1}, "No such user here")}
	case local == "full":
		return script{refusal: refusal(452, smtp.EnhancedCode{4, 2, 2}, "Mailbox full")}
	case local == "throttle":
		return script{refusal: refusal(421, smtp.EnhancedCode{4, 7, 0}, "Too much mail from you, come back later")}
	case local == "auth":
		return script{refusal: refusal(530, smtp.EnhancedCode{5, 7, 0}, "Authentication required")}
	case local == "busy":
		return script{final: refusal(451, smtp.EnhancedCode{4, 3, 0}, "Local trouble, try again later")}
	case local == "spam":
		return script{final: refusal(554, smtp.EnhancedCode{5, 7, 1}, "We do not want this content")}
	case local == "big":
		return script{final: refusal(552, smtp.EnhancedCode{5, 3, 4}, "Message too big")}
	case local == "stall", local == "stall-accept", local == "drop", local == "drop-accept":
		return script{silent: true, drop: word == "drop", accept: arg == "accept"}
	case word == "defer":
		if n, err := strconv.Atoi(arg); err == nil && n > 0 {
			return script{refusal: refusal(451, smtp.EnhancedCode{4, 3, 0}, "Not now"), tries: n}
		}
	case word == "slow":
		if d, err := time.ParseDuration(arg); err == nil && d > 0 {
			return script{delay: min(d, maxDelay)}
		}
	}
	return script{}
}

// decides tells whether the script has a say after the final dot.
func (s script) decides() bool { return s.final != nil || s.silent || s.delay > 0 }

// tries counts the refusals given to each address.
type tries struct {
	mu   sync.Mutex
	seen map[string]int
}

// maxTries bounds the addresses remembered; when full, the counts start anew.
const maxTries = 1 << 20

// refuse tells whether this try is still among the first n.
func (t *tries) refuse(address string, n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[address] >= n {
		return false
	}
	if len(t.seen) >= maxTries {
		clear(t.seen)
	}
	t.seen[address]++
	return true
}
