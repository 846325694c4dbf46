package breaker

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"
)

func TestMessageNamesTheTarget(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"smp$https://smp.example": "SMP access to 'https://smp.example' suspended",
		"ap$https://c3.example/a": "AS4 sending to 'https://c3.example/a' suspended",
		"mail$mx.example:587":     "Mail sending by 'mx.example:587' suspended",
		"sms$provider":            "SMS sending by 'provider' suspended",
		"webhook$hooks.example":   "Webhook calls to 'hooks.example' suspended",
		"verifier$v.example":      "Verification by 'v.example' suspended",
		"forwarder":               "Forwarding to the receiver backend suspended",
		"other$a$b":               "Sending by 'other$a$b' suspended",
		"":                        "Sending by '' suspended",
	} {
		if got := Message(Gate{Key: key, State: Open}, time.Now()); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s", key, got)
		}
	}
}

func TestMessageOfEachState(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 9, 14, 10, 12, 3, 0, time.FixedZone("CEST", 7200))
	for want, g := range map[string]Gate{
		"(state OPEN, 0s remaining)": {State: Open},
		"(state OPEN since 2026-09-14T08:12:03Z, 0s remaining) after 1 failures":                           {State: Open, OpenedAt: at, Until: at.Add(-time.Hour), Failures: 1},
		"(state HALF_OPEN since 2026-09-14T08:12:03Z); last failure: a b":                                  {State: HalfOpen, OpenedAt: at, Cause: "\ta\u202e\u200b\r\n\x1bb "},
		"(state OPEN since 2026-09-14T08:12:03Z, 60s remaining), opened by an operator: their maintenance": {State: Open, OpenedAt: at, Until: at.Add(time.Minute), Cause: "their maintenance", Forced: true},
		"(state HALF_OPEN), opened by an operator":                                                         {State: HalfOpen, Forced: true},
	} {
		g.Key = "forwarder"
		if got := Message(g, at); got != "Forwarding to the receiver backend suspended by circuit breaker "+want {
			t.Errorf("%s\nwant ... %s", got, want)
		}
	}
}

func FuzzMessage(f *testing.F) {
	f.Add("smp$https://smp.example", "open", "550 \xff no\x00\r\n\u2028such\u202e user")
	f.Add(strings.Repeat("$", 500), "half_open", strings.Repeat("\u00ad", 1000))
	f.Fuzz(func(t *testing.T, key, cause, more string) {
		got := Message(Gate{Key: key, State: Open, Cause: cause + more, Failures: 3, OpenedAt: time.Unix(0, 0)}, time.Unix(9, 0))
		hidden := func(r rune) bool {
			return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Cf, r)
		}
		if !utf8.ValidString(got) || strings.ContainsFunc(got, hidden) || utf8.RuneCountInString(got) > 2*maxCause+200 {
			t.Errorf("%q", got)
		}
	})
}

// Seed: "next_retry_dt is set to now + max (remaining open duration, retry scheduler
// interval)"; and jitter, of a tenth, at most a minute.
func TestTheDelayOfARejection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		left, least time.Duration
		jitter      float64
		want        time.Duration
	}{
		"what is left":         {time.Minute, time.Second, 0, time.Minute},
		"the interval":         {time.Second, time.Minute, 0, time.Minute},
		"with half the jitter": {time.Minute, time.Second, 0.5, 63 * time.Second},
		"forced for long":      {100 * time.Hour, time.Minute, 0.5, 100*time.Hour + 30*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := defaults()
				s.MinRejected = c.least
				b := newBench(s)
				b.jitter = func() float64 { return c.jitter }
				early := b.row.look()
				_, no := b.Acquire(Gate{ID: 1, Key: early.Key, State: Open, Version: 1, Until: time.Now().Add(c.left), Failures: 5})
				if no == nil || no.Delay != c.want || no.Gate.State != Open || no.Error() != no.Message {
					t.Fatalf("%+v, want %s", no, c.want)
				}
				if _, no = b.Acquire(early); no == nil || no.Gate.Failures != 5 {
					t.Errorf("an older claim: %+v", no)
				}
			})
		})
	}
}

// Refused credentials are a failure of a probe too, whatever is done with the
// delivery: otherwise the lane would open and close with every probe.
func TestAProbeWhoseCredentialsAreRefused(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"fail", "park"} {
		synctest.Test(t, func(t *testing.T) {
			s := defaults()
			s.OnAuth = mode
			b := newBench(s)
			b.calls(t, 5, Refusal)
			b.state(t, Open)
			time.Sleep(time.Minute)
			b.call(t, Refusal)
			b.state(t, Open)
			time.Sleep(time.Minute)
			b.call(t, Throttle) // it works, and wants less
			b.state(t, Closed)
			var went []string
			for _, c := range b.changes {
				went = append(went, fmt.Sprint(c.From.State, " ", c.To.State, " ", c.Message != ""))
			}
			if got := strings.Join(went, ", "); got != "closed open true, half_open open true, half_open closed false" {
				t.Errorf("%s: %s", mode, got)
			}
		})
	}
}

// What is open stays in the registry, what was open and is over may go.
func TestWhatWasOpenLeavesTheRegistry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(defaults())
		b.most = 10
		for i := range 200 {
			b.Acquire(Gate{Key: fmt.Sprint("k", i), State: Open, Version: 1, Until: time.Now().Add(time.Minute)})
		}
		if n := len(b.List()); n != 200 {
			t.Errorf("%d of 200 that are open", n)
		}
		time.Sleep(time.Minute + idle)
		b.Acquire(Gate{Key: "one", State: Closed})
		if n := len(b.List()); n != 1 {
			t.Errorf("%d are left", n)
		}
	})
}
