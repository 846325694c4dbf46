package smtp

import (
	"regexp"
	"strings"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Classify tells what kind of failure an answer is: first by what is certain
// (marker codes, then phase with reply code and enhanced code), then by the
// general rules of the seed "Delivery & Retries", and by words of the text only
// when no code says anything. What nothing recognises is delivery.Unclassified.
func Classify(phase delivery.Phase, code, enhanced, text string) delivery.Category {
	f := failure{phase: phase, code: code, reply: replyDigits(code), enhanced: enhanced, upper: strings.ToUpper(code), text: strings.ToLower(text)}
	for _, r := range rules {
		if r.match(f) {
			return r.category
		}
	}
	return delivery.Unclassified
}

// OnServer tells whether an answer speaks about the server or the path to it
// rather than about this message or recipient: what a breaker should count.
func OnServer(a delivery.Answer) bool {
	switch a.Phase {
	case PhaseDial, PhaseGreeting, PhaseEhlo, PhaseTLS, PhaseAuth:
		return true
	case PhaseContent, PhaseWait:
		return false
	}
	switch a.Category {
	case delivery.Auth, delivery.Quota:
		return true
	}
	switch a.Code {
	case "421", CodeLost, CodeTimeout, CodeProtocol:
		return true
	}
	return false
}

// failure is what a rule sees.
type failure struct {
	phase    delivery.Phase
	code     string
	reply    string // the code's three digits when it is a reply code, "" otherwise
	enhanced string
	upper    string // the code in upper case
	text     string // in lower case
}

func (f failure) is(codes ...string) bool {
	for _, c := range codes {
		if f.reply == c {
			return true
		}
	}
	return false
}

func (f failure) class(digit byte) bool { return f.reply != "" && f.reply[0] == digit }

func (f failure) detail(codes ...string) bool {
	for _, c := range codes {
		if f.enhanced == c || strings.HasSuffix(c, ".") && strings.HasPrefix(f.enhanced, c) {
			return true
		}
	}
	return false
}

func (f failure) at(phases ...delivery.Phase) bool {
	for _, p := range phases {
		if f.phase == p {
			return true
		}
	}
	return false
}

func (f failure) codeHas(words ...string) bool {
	if f.reply != "" {
		return false
	}
	for _, w := range words {
		if strings.Contains(f.upper, w) {
			return true
		}
	}
	return false
}

func (f failure) says(words ...string) bool {
	for _, w := range words {
		if strings.Contains(f.text, w) {
			return true
		}
	}
	return false
}

var (
	rateWords = regexp.MustCompile(`\brate\b|quota|throttl|too many|too fast|limit exceeded|exceeded .*limit|slow down`)
	fullWords = regexp.MustCompile(`mailbox (is )?full|full mailbox|over ?quota|mailbox.*quota|quota.*mailbox|user.*quota|insufficient (system )?storage`)
	tssWords  = regexp.MustCompile(`\[tss\d+\]`)
)

// full tells whether it is the recipient's mailbox that has no room, which is
// not a limit on us although its text often says "quota".
func (f failure) full() bool {
	return f.detail("4.2.2", "5.2.2") || f.enhanced == "" && f.is("452") && fullWords.MatchString(f.text)
}

// rule is one line of the table. The name is what the tests cite: C and M are
// the seed's steps for codes and messages, T is the typed table.
type rule struct {
	name     string
	category delivery.Category
	match    func(failure) bool
}

// rules in the order in which they are tried; the first that matches wins.
var rules = []rule{
	// What our own steps report.
	{"C1 marker code of configuration", delivery.Config, func(f failure) bool {
		switch f.code {
		case "CONFIG_NOT_RESOLVABLE", "TEMPLATE_NOT_RESOLVABLE", "MONTHLY_QUOTA_EXCEEDED":
			return true
		}
		return false
	}},
	{"C2 marker code of content", delivery.InvalidInput, func(f failure) bool { return f.code == "CONTENT_INVALID" }},
	{"C3 SMTP_AuthenticationFailedException", delivery.Auth, func(f failure) bool { return f.code == "SMTP_AuthenticationFailedException" }},
	{"C3 SMTP_SendFailedException", delivery.Permanent, func(f failure) bool { return f.code == "SMTP_SendFailedException" }},
	{"C3 SMTP_ mail exceptions", delivery.Transient, func(f failure) bool {
		switch f.code {
		case "SMTP_MessagingException", "SMTP_MailSendException", "SMTP_MailException":
			return true
		}
		return false
	}},
	{"C3 any other SMTP_", delivery.Unclassified, func(f failure) bool { return strings.HasPrefix(f.code, "SMTP_") }},
	{"T path to the server", delivery.Transient, func(f failure) bool {
		switch f.code {
		case CodeDial, CodeTLS, CodeNoTLS, CodeLost, CodeTimeout, CodeProtocol:
			return true
		}
		return false
	}},

	// The typed table: phase, reply code, enhanced code.
	{"T rate by enhanced code", delivery.Quota, func(f failure) bool {
		return f.class('4') && (f.detail("4.7.28", "4.7.650") || tssWords.MatchString(f.text))
	}},
	{"C6/T 421 in any phase", delivery.Transient, func(f failure) bool { return f.is("421") }},
	// Nothing of this message has been said yet, so no refusal can be about it.
	{"T greeting, EHLO, STARTTLS", delivery.Transient, func(f failure) bool {
		return f.reply != "" && f.at(PhaseGreeting, PhaseEhlo, PhaseTLS)
	}},
	{"T temporary failure of AUTH", delivery.Transient, func(f failure) bool { return f.at(PhaseAuth) && f.class('4') || f.is("432") }},
	{"C7/T authentication", delivery.Auth, func(f failure) bool {
		return f.is("530", "534", "535", "538") || f.at(PhaseAuth) && f.class('5')
	}},
	{"T size", delivery.InvalidInput, func(f failure) bool { return f.class('5') && f.detail("5.3.4", "5.2.3") }},
	{"T mailbox full", delivery.Transient, func(f failure) bool { return f.full() }},
	{"T too many recipients", delivery.Transient, func(f failure) bool {
		return f.at(PhaseRcpt) && (f.is("452") && f.detail("4.5.3") || f.is("552"))
	}},
	{"T rate by text", delivery.Quota, func(f failure) bool { return f.is("452", "454") && rateWords.MatchString(f.text) }},
	{"C6/T 450 and 451", delivery.Transient, func(f failure) bool { return f.is("450", "451") }},
	{"T recipient", delivery.Permanent, func(f failure) bool {
		return f.is("550", "551", "553") && f.detail("5.1.") || f.is("556") || f.class('5') && f.detail("5.1.10", "5.2.1")
	}},
	{"T policy", delivery.Policy, func(f failure) bool { return f.class('5') && f.detail("5.7.") }},
	{"T syntax of our dialogue", delivery.InvalidInput, func(f failure) bool { return f.is("500", "501", "502", "503", "504", "555") }},

	// The seed's rules for codes.
	{"C4 550, 551, 553", delivery.Permanent, func(f failure) bool { return f.is("550", "551", "553") }},
	{"C5 552", delivery.InvalidInput, func(f failure) bool { return f.is("552") }},
	{"C6 452", delivery.Transient, func(f failure) bool { return f.is("452") }},
	{"C8 LIMIT, QUOTA, THROTTL", delivery.Quota, func(f failure) bool { return f.codeHas("LIMIT", "QUOTA", "THROTTL") }},
	{"C9 AUTH, SIGNATURE, FORBIDDEN", delivery.Auth, func(f failure) bool { return f.codeHas("AUTH", "SIGNATURE", "FORBIDDEN") }},
	{"C10 INVALID, MALFORM, PARAM", delivery.InvalidInput, func(f failure) bool { return f.codeHas("INVALID", "MALFORM", "PARAM") }},
	{"C11 TIMEOUT, UNAVAILABLE, RETRY", delivery.Transient, func(f failure) bool { return f.codeHas("TIMEOUT", "UNAVAILABLE", "RETRY") }},
	{"T any other 4xx", delivery.Transient, func(f failure) bool { return f.class('4') }},
	{"T any other 5xx", delivery.Permanent, func(f failure) bool { return f.class('5') }},

	// Words of the text, last of all.
	{"M1 timeout, connection reset, unavailable, try again", delivery.Transient, func(f failure) bool {
		return f.says("timeout", "timed out", "connection reset", "unavailable", "try again")
	}},
	{"M2 rate limit, too many requests, quota, throttle", delivery.Quota, func(f failure) bool {
		return f.says("rate limit", "too many requests", "quota", "throttle")
	}},
	{"M3 unauthorized, forbidden, invalid credentials, authentication failed", delivery.Auth, func(f failure) bool {
		return f.says("unauthorized", "forbidden", "invalid credentials", "authentication failed")
	}},
	{"M4 invalid address, malformed, bad recipient, no recipient", delivery.InvalidInput, func(f failure) bool {
		return f.says("invalid address", "malformed", "bad recipient", "no recipient")
	}},
	{"M5 no such user, user unknown, does not exist", delivery.Permanent, func(f failure) bool {
		return f.says("no such user", "user unknown", "does not exist")
	}},
}

// replyDigits returns the reply code that a code starts with ("550", "550 5.1.1",
// "550-x"), but not a longer number that merely starts alike.
func replyDigits(code string) string {
	if len(code) < 3 || code[0] < '2' || code[0] > '5' {
		return ""
	}
	for i := range min(len(code), 4) {
		digit := code[i] >= '0' && code[i] <= '9'
		if (i < 3) != digit {
			return ""
		}
	}
	return code[:3]
}
