package smtp

import (
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// Each case names the rule that decides it; every rule of the table has one.
func TestClassify(t *testing.T) {
	t.Parallel()
	cases := []struct {
		rule                 string
		phase                delivery.Phase
		code, enhanced, text string
		want                 delivery.Category
	}{
		{"C1 marker code of configuration", PhaseContent, "CONFIG_NOT_RESOLVABLE", "", "", delivery.Config},
		{"C1 marker code of configuration", "", "TEMPLATE_NOT_RESOLVABLE", "", "", delivery.Config},
		{"C1 marker code of configuration", "", "MONTHLY_QUOTA_EXCEEDED", "", "", delivery.Config}, // before C8
		{"C2 marker code of content", PhaseContent, "CONTENT_INVALID", "", "try again", delivery.InvalidInput},
		{"C3 SMTP_AuthenticationFailedException", "", "SMTP_AuthenticationFailedException", "", "", delivery.Auth},
		{"C3 SMTP_SendFailedException", "", "SMTP_SendFailedException", "", "", delivery.Permanent},
		{"C3 SMTP_ mail exceptions", "", "SMTP_MessagingException", "", "", delivery.Transient},
		{"C3 SMTP_ mail exceptions", "", "SMTP_MailSendException", "", "user unknown", delivery.Transient},
		{"C3 SMTP_ mail exceptions", "", "SMTP_MailException", "", "", delivery.Transient},
		{"C3 any other SMTP_", "", "SMTP_MailAuthenticationException", "", "authentication failed", delivery.Unclassified},
		{"T path to the server", PhaseDial, CodeDial, "", "", delivery.Transient},
		{"T path to the server", PhaseTLS, CodeTLS, "", "", delivery.Transient},
		{"T path to the server", PhaseTLS, CodeNoTLS, "", "", delivery.Transient},
		{"T path to the server", PhaseRcpt, CodeLost, "", "", delivery.Transient},
		{"T path to the server", PhaseRcpt, CodeTimeout, "", "", delivery.Transient},
		{"T path to the server", PhaseRcpt, CodeProtocol, "", "", delivery.Transient},

		{"T rate by enhanced code", PhaseMail, "421", "4.7.28", "unusual rate", delivery.Quota},
		{"T rate by enhanced code", PhaseRcpt, "450", "4.7.650", "", delivery.Quota},
		{"T rate by enhanced code", PhaseMail, "421", "4.7.0", "[TSS04] Messages from you temporarily deferred", delivery.Quota},
		{"C6/T 421 in any phase", PhaseGreeting, "421", "", "", delivery.Transient},
		{"C6/T 421 in any phase", PhaseRcpt, "421", "4.7.0", "", delivery.Transient},
		{"C6/T 421 in any phase", PhaseFinal, "421", "", "no such user", delivery.Transient},
		{"T greeting, EHLO, STARTTLS", PhaseGreeting, "554", "5.7.1", "blocked", delivery.Transient},
		{"T greeting, EHLO, STARTTLS", PhaseEhlo, "501", "", "", delivery.Transient},
		{"T greeting, EHLO, STARTTLS", PhaseTLS, "454", "4.7.0", "TLS not available", delivery.Transient},
		{"T temporary failure of AUTH", PhaseAuth, "454", "4.7.0", "", delivery.Transient},
		{"T temporary failure of AUTH", PhaseAuth, "432", "4.7.12", "", delivery.Transient},
		{"C7/T authentication", PhaseMail, "530", "5.7.0", "", delivery.Auth},
		{"C7/T authentication", PhaseAuth, "534", "5.7.9", "", delivery.Auth},
		{"C7/T authentication", PhaseAuth, "535", "5.7.8", "", delivery.Auth},
		{"C7/T authentication", PhaseAuth, "538", "", "", delivery.Auth},
		{"C7/T authentication", PhaseAuth, "504", "", "mechanism", delivery.Auth},
		{"T size", PhaseData, "552", "5.3.4", "", delivery.InvalidInput},
		{"T size", PhaseFinal, "554", "5.2.3", "", delivery.InvalidInput},
		{"T size", PhaseRcpt, "552", "5.3.4", "", delivery.InvalidInput}, // not too many recipients
		{"T mailbox full", PhaseRcpt, "452", "4.2.2", "over quota", delivery.Transient},
		{"T mailbox full", PhaseRcpt, "552", "5.2.2", "", delivery.Transient},
		{"T mailbox full", PhaseFinal, "552", "5.2.2", "", delivery.Transient},
		{"T mailbox full", PhaseRcpt, "452", "", "user is over quota", delivery.Transient}, // not our quota
		{"T too many recipients", PhaseRcpt, "452", "4.5.3", "too many recipients", delivery.Transient},
		{"T too many recipients", PhaseRcpt, "552", "", "too many recipients", delivery.Transient},
		{"T rate by text", PhaseMail, "452", "", "rate limit exceeded", delivery.Quota},
		{"T rate by text", PhaseMail, "454", "4.7.1", "sending quota exceeded, throttled", delivery.Quota},
		{"C6/T 450 and 451", PhaseRcpt, "450", "4.7.1", "Greylisted", delivery.Transient},
		{"C6/T 450 and 451", PhaseRcpt, "451", "4.3.0", "", delivery.Transient},
		{"T recipient", PhaseRcpt, "550", "5.1.1", "quota", delivery.Permanent},
		{"T recipient", PhaseRcpt, "553", "5.1.3", "", delivery.Permanent},
		{"T recipient", PhaseRcpt, "556", "", "", delivery.Permanent},
		{"T recipient", PhaseRcpt, "554", "5.1.10", "", delivery.Permanent},
		{"T recipient", PhaseRcpt, "554", "5.2.1", "", delivery.Permanent},
		{"T policy", PhaseFinal, "550", "5.7.1", "", delivery.Policy},
		{"T policy", PhaseFinal, "554", "5.7.1", "spam", delivery.Policy},
		{"T syntax of our dialogue", PhaseMail, "500", "", "", delivery.InvalidInput},
		{"T syntax of our dialogue", PhaseRcpt, "501", "5.1.3", "", delivery.InvalidInput},
		{"T syntax of our dialogue", PhaseData, "504", "", "", delivery.InvalidInput},
		{"T syntax of our dialogue", PhaseRcpt, "555", "", "", delivery.InvalidInput},

		{"C4 550, 551, 553", PhaseRcpt, "550", "", "try again", delivery.Permanent},
		{"C4 550, 551, 553", PhaseRcpt, "551", "", "", delivery.Permanent},
		{"C4 550, 551, 553", PhaseRcpt, "553 5.0.0", "", "", delivery.Permanent},
		{"C5 552", PhaseFinal, "552", "", "", delivery.InvalidInput},
		{"C6 452", PhaseMail, "452", "4.3.1", "", delivery.Transient},
		{"C8 LIMIT, QUOTA, THROTTL", "", "isv.BUSINESS_LIMIT_CONTROL", "", "", delivery.Quota},
		{"C8 LIMIT, QUOTA, THROTTL", "", "QUOTA_EXCEEDED", "", "", delivery.Quota},
		{"C8 LIMIT, QUOTA, THROTTL", "", "Throttling", "", "", delivery.Quota},
		{"C9 AUTH, SIGNATURE, FORBIDDEN", "", "SignatureDoesNotMatch", "", "", delivery.Auth},
		{"C9 AUTH, SIGNATURE, FORBIDDEN", PhaseAuth, CodeNoAuth, "", "", delivery.Auth},
		{"C10 INVALID, MALFORM, PARAM", PhaseContent, CodeAddress, "", "", delivery.InvalidInput},
		{"C11 TIMEOUT, UNAVAILABLE, RETRY", "", "READ_TIMEOUT", "", "", delivery.Transient},
		{"T any other 4xx", PhaseRcpt, "447", "", "user unknown", delivery.Transient},
		{"T any other 5xx", PhaseFinal, "554", "", "timeout", delivery.Permanent},

		{"M1 timeout, connection reset, unavailable, try again", "", "", "", "read: Connection Reset by peer", delivery.Transient},
		{"M1 timeout, connection reset, unavailable, try again", "", "5501", "", "please try again", delivery.Transient}, // no reply code
		{"M2 rate limit, too many requests, quota, throttle", "", "", "", "Too many requests", delivery.Quota},
		{"M3 unauthorized, forbidden, invalid credentials, authentication failed", "", "", "", "Invalid credentials", delivery.Auth},
		{"M4 invalid address, malformed, bad recipient, no recipient", "", "", "", "Bad recipient", delivery.InvalidInput},
		{"M5 no such user, user unknown, does not exist", "", "", "", "User unknown", delivery.Permanent},
		{"", "", "", "", "something else", delivery.Unclassified},
		{"", "", "250", "", "", delivery.Unclassified},
	}
	tested := map[string]bool{}
	for _, c := range cases {
		if got := Classify(c.phase, c.code, c.enhanced, c.text); got != c.want {
			t.Errorf("%s: %s %s %s %q is %s, want %s", c.rule, c.phase, c.code, c.enhanced, c.text, got, c.want)
		}
		if got := ruleFor(c.phase, c.code, c.enhanced, c.text); got != c.rule {
			t.Errorf("%s %s %s %q is decided by %q, not by %q", c.phase, c.code, c.enhanced, c.text, got, c.rule)
		}
		tested[c.rule] = true
	}
	for _, r := range rules {
		if !tested[r.name] {
			t.Errorf("no case for rule %q", r.name)
		}
	}
}

func ruleFor(phase delivery.Phase, code, enhanced, text string) string {
	f := failure{phase: phase, code: code, reply: replyDigits(code), enhanced: enhanced, upper: strings.ToUpper(code), text: strings.ToLower(text)}
	for _, r := range rules {
		if r.match(f) {
			return r.name
		}
	}
	return ""
}

func TestOnServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer delivery.Answer
		want   bool
	}{
		{delivery.Answer{Phase: PhaseDial, Code: CodeDial, Category: delivery.Transient}, true},
		{delivery.Answer{Phase: PhaseGreeting, Code: "554", Category: delivery.Transient}, true},
		{delivery.Answer{Phase: PhaseAuth, Code: "535", Category: delivery.Auth}, true},
		{delivery.Answer{Phase: PhaseMail, Code: "530", Category: delivery.Auth}, true},
		{delivery.Answer{Phase: PhaseRcpt, Code: "421", Category: delivery.Transient}, true},
		{delivery.Answer{Phase: PhaseRcpt, Code: "452", Category: delivery.Quota}, true},
		{delivery.Answer{Phase: PhaseFinal, Code: CodeTimeout}, true},
		{delivery.Answer{Phase: PhaseRcpt, Code: "550", Category: delivery.Permanent}, false},
		{delivery.Answer{Phase: PhaseRcpt, Code: "451", Category: delivery.Transient}, false},
		{delivery.Answer{Phase: PhaseContent, Code: CodeContent, Category: delivery.InvalidInput}, false},
		{delivery.Answer{Phase: PhaseWait, Code: CodeTimeout, Category: delivery.Transient}, false},
		{delivery.Answer{Phase: PhaseFinal, Code: "250"}, false},
	} {
		if got := OnServer(c.answer); got != c.want {
			t.Errorf("%+v: %v", c.answer, got)
		}
	}
}

func TestParseWait(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"Greylisted, please try again in 300 seconds": 300 * time.Second,
		"wait 5 minutes":                                5 * time.Minute,
		"Retry after 60s":                               time.Minute,
		"Please come back later: 2 min.":                2 * time.Minute,
		"try again in 00:04:59":                         4*time.Minute + 59*time.Second,
		"try again in 99:00:00":                         time.Hour,
		"graylisted for 1 hour":                         time.Hour,
		"try again in 3 hours":                          time.Hour,
		"try again in 999999999999999999999999 seconds": time.Hour,
		"wait 4000s":                                    time.Hour,
		"wait 0 seconds":                                0,
		"try again later":                               0,
		"mailbox has 300 seconds of audio":              0,
		"":                                              0,
		"message 12345 deferred, 5 m, then please wait":    0,
		"retry in 10 mailboxes":                            0,
		"temporarily deferred; retry timeout exceeded 7 h": time.Hour,
	} {
		if got := ParseWait(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestRetryAfterOfGreylisting(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		answer delivery.Answer
		want   time.Duration
	}{
		{delivery.Answer{Category: delivery.Transient, Text: "Greylisted"}, 5 * time.Minute},
		{delivery.Answer{Category: delivery.Transient, Text: "You are grey-listed, wait 90 s"}, 90 * time.Second},
		{delivery.Answer{Category: delivery.Transient, Text: "Not now"}, 0},
		{delivery.Answer{Category: delivery.Permanent, Text: "do not try again in 300 seconds"}, 0},
	} {
		if got := retryAfter(c.answer); got != c.want {
			t.Errorf("%+v: %s", c.answer, got)
		}
	}
}

func FuzzParseWait(f *testing.F) {
	f.Add("try again in 300 seconds")
	f.Add("wait 00:05:00")
	f.Add("grEylist 99999999999999999999 h")
	f.Fuzz(func(t *testing.T, text string) {
		if d := ParseWait(text); d < 0 || d > maxWait {
			t.Errorf("%q: %s", text, d)
		}
	})
}
