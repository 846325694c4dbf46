package retry_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

const (
	low    = 0.0
	middle = 0.5
	high   = 1 - 1e-12
)

// The seed's table "Retry | Approximate wait", with its plus or minus 50 %.
func TestSoftaSchedule(t *testing.T) {
	t.Parallel()
	p := retry.Softa()
	var sum time.Duration
	for retries, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute} {
		if got := p.Delay(retries, delivery.Answer{Category: delivery.Transient}, 0, middle); got != want {
			t.Errorf("wait before retry %d: %s, want %s", retries+1, got, want)
		}
		if got := p.Delay(retries, delivery.Answer{}, 0, low); got != want/2 {
			t.Errorf("least wait before retry %d: %s, want %s", retries+1, got, want/2)
		}
		if got := p.Delay(retries, delivery.Answer{}, 0, high); got < want*3/2-time.Millisecond || got > want*3/2 {
			t.Errorf("longest wait before retry %d: %s, want %s", retries+1, got, want*3/2)
		}
		sum += want
	}
	if sum != 15*time.Minute+30*time.Second { // about a quarter of an hour
		t.Errorf("in all %s", sum)
	}
	if got := p.Delay(100, delivery.Answer{}, 0, middle); got != time.Hour {
		t.Errorf("the cap is %s before jitter", got)
	}
	if got := p.Delay(100, delivery.Answer{}, 0, high); got > 90*time.Minute || got < 89*time.Minute {
		t.Errorf("and %s after it", got)
	}
}

func TestFloorsOfADelay(t *testing.T) {
	t.Parallel()
	p := retry.Softa()
	short := retry.Policy{Base: 50 * time.Millisecond, Multiplier: 2, Cap: time.Hour, Jitter: 1}
	for _, c := range []struct {
		name    string
		policy  retry.Policy
		retries int
		answer  delivery.Answer
		asked   time.Duration
		random  float64
		want    time.Duration
	}{
		{"a used-up limit waits five minutes", p, 0, delivery.Answer{Category: delivery.Quota}, 0, high, 5 * time.Minute},
		{"or longer, by the schedule", p, 4, delivery.Answer{Category: delivery.Quota}, 0, middle, 8 * time.Minute},
		{"only a limit does", p, 0, delivery.Answer{Category: delivery.Unclassified}, 0, middle, 30 * time.Second},
		{"what the other side asks for", p, 0, delivery.Answer{}, 10 * time.Minute, middle, 10 * time.Minute},
		{"not less than the schedule", p, 4, delivery.Answer{}, time.Second, middle, 8 * time.Minute},
		{"and not for ever", p, 0, delivery.Answer{}, 1000 * time.Hour, middle, time.Hour},
		{"nor backwards", p, 0, delivery.Answer{}, -time.Hour, middle, 30 * time.Second},
		{"at least a second", retry.Policy{Base: 2 * time.Second, Multiplier: 1, Cap: time.Hour, Jitter: 1}, 0, delivery.Answer{}, 0, low, time.Second},
		{"unless the base is shorter", short, 0, delivery.Answer{}, 0, low, 50 * time.Millisecond},
		{"retries below zero are none", p, -3, delivery.Answer{}, 0, middle, 30 * time.Second},
	} {
		if got := c.policy.Delay(c.retries, c.answer, c.asked, c.random); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// one is the past of a delivery to one recipient.
func one(retries int) retry.Past { return retry.Past{Retries: retries, Waiting: []int{0}} }

func refused(c delivery.Category) delivery.Outcome {
	return delivery.Outcome{Verdict: delivery.Refused, Answer: delivery.Answer{Category: c, Code: "code"}}
}

// The seed's table of categories, and what follows when the retries are used up.
func TestEveryCategory(t *testing.T) {
	t.Parallel()
	for category, first := range map[delivery.Category]delivery.State{
		delivery.Transient: delivery.Retry, delivery.Quota: delivery.Retry, delivery.Unclassified: delivery.Retry, delivery.NoCategory: delivery.Retry,
		delivery.Permanent: delivery.Failed, delivery.InvalidInput: delivery.Failed, delivery.Auth: delivery.Failed, delivery.Config: delivery.Failed, delivery.Policy: delivery.Failed,
	} {
		for retries := range 8 {
			want := first
			if first == delivery.Retry && retries >= 5 {
				want = delivery.Dead
			}
			d := retry.Softa().Decide(refused(category), one(retries), middle)
			if d.State != want || d.GiveBack || d.Answer.Code != "code" {
				t.Errorf("%q after %d retries: %+v, want %s", category, retries, d, want)
			}
			if (d.Delay > 0) != (want == delivery.Retry) || want == delivery.Retry && category == delivery.Quota && d.Delay < 5*time.Minute {
				t.Errorf("%q after %d retries: wait %s", category, retries, d.Delay)
			}
			if settled := len(d.Recipients); settled != map[bool]int{true: 0, false: 1}[want == delivery.Retry] {
				t.Errorf("%q after %d retries: %d recipients settled", category, retries, settled)
			}
		}
	}
}

// A delivery whose retries are used up and that is retried by hand gets exactly one
// chance; one with retries left goes on by itself.
func TestRetryByHand(t *testing.T) {
	t.Parallel()
	p := retry.Softa()
	if d := p.Decide(refused(delivery.Transient), one(p.MaxRetries+1), middle); d.State != delivery.Dead {
		t.Errorf("a used-up one: %s", d.State)
	}
	if d := p.Decide(delivery.Outcome{Verdict: delivery.Accepted}, one(p.MaxRetries+1), middle); d.State != delivery.Sent {
		t.Errorf("and if it is accepted: %s", d.State)
	}
	if d := p.Decide(refused(delivery.Transient), one(p.MaxRetries-1), middle); d.State != delivery.Retry {
		t.Errorf("one with a retry left: %s", d.State)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	transient, permanent := delivery.Answer{Category: delivery.Transient, Code: "451"}, delivery.Answer{Category: delivery.Permanent, Code: "550"}
	quota, ok := delivery.Answer{Category: delivery.Quota, Code: "452"}, delivery.Answer{Code: "250"}
	each := func(verdict delivery.Verdict, answer delivery.Answer, ordinals ...int) (out []delivery.RecipientOutcome) {
		for _, o := range ordinals {
			out = append(out, delivery.RecipientOutcome{Ordinal: o, Verdict: verdict, Answer: answer})
		}
		return out
	}
	join := func(lists ...[]delivery.RecipientOutcome) (out []delivery.RecipientOutcome) {
		for _, l := range lists {
			out = append(out, l...)
		}
		return out
	}
	hold := retry.Softa()
	hold.OnUnknown = retry.UnknownHold
	three := retry.Past{Waiting: []int{0, 1, 2}}
	usedUp := retry.Past{Waiting: []int{0, 1, 2}, Retries: 5}
	for _, c := range []struct {
		name    string
		policy  retry.Policy
		outcome delivery.Outcome
		past    retry.Past
		state   delivery.State
		settled map[int]delivery.Verdict
		code    string
		wait    time.Duration
	}{
		{"accepted by all", retry.Softa(), delivery.Outcome{Verdict: delivery.Accepted, Answer: ok}, three, delivery.Sent,
			map[int]delivery.Verdict{0: "accepted", 1: "accepted", 2: "accepted"}, "250", 0},
		{"refused for good by all", retry.Softa(), delivery.Outcome{Verdict: delivery.Refused, Answer: permanent}, three, delivery.Failed,
			map[int]delivery.Verdict{0: "refused", 1: "refused", 2: "refused"}, "550", 0},
		{"one refused for good, the others accepted", retry.Softa(), delivery.Outcome{Verdict: delivery.Accepted, Answer: ok, Recipients: each("refused", permanent, 1)}, three, delivery.Sent,
			map[int]delivery.Verdict{0: "accepted", 1: "refused", 2: "accepted"}, "250", 0},
		{"one deferred, the others settled", retry.Softa(), delivery.Outcome{Verdict: delivery.Accepted, Answer: ok, Recipients: join(each("refused", permanent, 1), each("refused", transient, 2))}, three, delivery.Retry,
			map[int]delivery.Verdict{0: "accepted", 1: "refused"}, "451", 30 * time.Second},
		{"one deferred by a limit", retry.Softa(), delivery.Outcome{Verdict: delivery.Accepted, Answer: ok, Recipients: join(each("refused", quota, 0), each("refused", transient, 2))}, three, delivery.Retry,
			map[int]delivery.Verdict{1: "accepted"}, "452", 5 * time.Minute},
		{"used up, somebody accepted now", retry.Softa(), delivery.Outcome{Verdict: delivery.Accepted, Answer: ok, Recipients: each("refused", transient, 2)}, usedUp, delivery.Sent,
			map[int]delivery.Verdict{0: "accepted", 1: "accepted", 2: "refused"}, "250", 0},
		{"used up, somebody accepted before", retry.Softa(), delivery.Outcome{Verdict: delivery.Refused, Answer: transient}, retry.Past{Waiting: []int{2}, Accepted: 1, Retries: 5}, delivery.Sent,
			map[int]delivery.Verdict{2: "refused"}, "451", 0},
		{"used up, nobody accepted", retry.Softa(), delivery.Outcome{Verdict: delivery.Refused, Answer: transient, Recipients: each("refused", permanent, 0)}, usedUp, delivery.Dead,
			map[int]delivery.Verdict{0: "refused", 1: "refused", 2: "refused"}, "451", 0},
		{"the last one refused for good, an earlier accepted", retry.Softa(), delivery.Outcome{Verdict: delivery.Refused, Answer: permanent}, retry.Past{Waiting: []int{2}, Accepted: 1}, delivery.Sent,
			map[int]delivery.Verdict{2: "refused"}, "550", 0},
		{"nobody knows, retry", retry.Softa(), delivery.Outcome{Answer: transient}, three, delivery.Retry, nil, "451", 30 * time.Second},
		{"nobody knows, used up", retry.Softa(), delivery.Outcome{Answer: transient}, usedUp, delivery.Dead,
			map[int]delivery.Verdict{0: "refused", 1: "refused", 2: "refused"}, "451", 0},
		{"nobody knows, hold", hold, delivery.Outcome{Answer: transient}, three, delivery.Held, nil, "451", 0},
		{"nobody knows, hold, used up", hold, delivery.Outcome{Answer: transient}, usedUp, delivery.Held, nil, "451", 0},
		{"held, and what is known is kept", hold, delivery.Outcome{Answer: transient, Recipients: join(each("accepted", ok, 0), each("refused", permanent, 1))}, three, delivery.Held,
			map[int]delivery.Verdict{0: "accepted", 1: "refused"}, "451", 0},
		{"of one recipient nobody knows, hold", hold, delivery.Outcome{Verdict: delivery.Accepted, Answer: ok, Recipients: each(delivery.Unknown, transient, 2)}, three, delivery.Held,
			map[int]delivery.Verdict{0: "accepted", 1: "accepted"}, "451", 0},
		{"known after all, hold", hold, delivery.Outcome{Recipients: each("accepted", ok, 0, 1, 2)}, three, delivery.Sent,
			map[int]delivery.Verdict{0: "accepted", 1: "accepted", 2: "accepted"}, "", 0},
		{"an answer for nobody's ordinal", retry.Softa(), delivery.Outcome{Verdict: delivery.Accepted, Answer: ok, Recipients: each("refused", permanent, 9)}, three, delivery.Sent,
			map[int]delivery.Verdict{0: "accepted", 1: "accepted", 2: "accepted"}, "250", 0},
		{"no recipients of its own, accepted", retry.Softa(), delivery.Outcome{Verdict: delivery.Accepted, Answer: ok}, retry.Past{}, delivery.Sent, nil, "250", 0},
		{"no recipients of its own, deferred", retry.Softa(), delivery.Outcome{Verdict: delivery.Refused, Answer: transient}, retry.Past{}, delivery.Retry, nil, "451", 30 * time.Second},
		{"no recipients of its own, refused", retry.Softa(), delivery.Outcome{Verdict: delivery.Refused, Answer: permanent}, retry.Past{}, delivery.Failed, nil, "550", 0},
		{"no recipients of its own, used up", retry.Softa(), delivery.Outcome{Verdict: delivery.Refused, Answer: transient}, retry.Past{Retries: 5}, delivery.Dead, nil, "451", 0},
	} {
		d := c.policy.Decide(c.outcome, c.past, middle)
		settled := map[int]delivery.Verdict{}
		for _, r := range d.Recipients {
			settled[r.Ordinal] = r.Verdict
		}
		if d.State != c.state || d.Answer.Code != c.code || d.Delay != c.wait || d.GiveBack || fmt.Sprint(settled) != fmt.Sprint(c.settled) && len(settled)+len(c.settled) > 0 {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
}

// An attempt that we cut off before anything happened costs nothing.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for _, policy := range []retry.OnUnknown{retry.UnknownRetry, retry.UnknownHold} {
		p := retry.Softa()
		p.OnUnknown = policy
		d := p.Decide(delivery.Outcome{Verdict: delivery.Interrupted}, one(5), high)
		if !d.GiveBack || d.State != "" || d.Delay < 0 || d.Delay > time.Second || len(d.Recipients) != 0 {
			t.Errorf("%+v", d)
		}
	}
}

func TestDelayProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(r *rapid.T) {
		p := retry.Policy{
			Base: time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(r, "base")), Multiplier: rapid.Float64Range(1, 100).Draw(r, "multiplier"),
			Jitter: rapid.Float64Range(0, 1).Draw(r, "jitter"), QuotaFloor: time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(r, "floor")),
			MaxRetryAfter: time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(r, "most asked")),
		}
		p.Cap = p.Base + time.Duration(rapid.Int64Range(0, 1<<62).Draw(r, "cap"))
		answer := delivery.Answer{Category: rapid.SampledFrom([]delivery.Category{delivery.Transient, delivery.Quota}).Draw(r, "category")}
		asked := time.Duration(rapid.Int64().Draw(r, "asked"))
		retries, random := rapid.IntRange(-1, 2000).Draw(r, "retries"), rapid.Float64Range(0, high).Draw(r, "random")
		got, next := p.Delay(retries, answer, asked, random), p.Delay(retries+1, answer, asked, random)
		if got < 0 || got < min(time.Second, p.Base) {
			r.Fatalf("a wait of %s", got)
		}
		if next < got {
			r.Fatalf("retry %d waits %s and the next %s", retries, got, next)
		}
		if answer.Category == delivery.Quota && got < p.QuotaFloor {
			r.Fatalf("%s is below the floor %s", got, p.QuotaFloor)
		}
		most := max(float64(p.Cap)*(1+p.Jitter), float64(p.QuotaFloor), float64(p.MaxRetryAfter), float64(time.Second))
		if float64(got) > most+1 {
			r.Fatalf("%s is above every bound (%s)", got, time.Duration(most))
		}
		if more := p.Delay(retries, answer, asked, min(random+0.1, high)); more < got {
			r.Fatalf("a larger draw waits less: %s, %s", more, got)
		}
	})
}

// Whatever an attempt reports, each waiting recipient is settled at most once, and
// the state fits what is settled.
func TestDecisionProperties(t *testing.T) {
	t.Parallel()
	verdicts := []delivery.Verdict{delivery.Unknown, delivery.Accepted, delivery.Refused, delivery.Interrupted}
	categories := []delivery.Category{"", delivery.Transient, delivery.Quota, delivery.Unclassified, delivery.Permanent, delivery.Auth, delivery.Policy}
	rapid.Check(t, func(r *rapid.T) {
		answer := func(name string) delivery.Answer {
			return delivery.Answer{Category: rapid.SampledFrom(categories).Draw(r, name)}
		}
		p := retry.Softa()
		p.OnUnknown = rapid.SampledFrom([]retry.OnUnknown{retry.UnknownRetry, retry.UnknownHold, ""}).Draw(r, "policy")
		o := delivery.Outcome{Verdict: rapid.SampledFrom(verdicts).Draw(r, "verdict"), Answer: answer("answer"), RetryAfter: time.Duration(rapid.Int64().Draw(r, "retry after"))}
		past := retry.Past{Retries: rapid.IntRange(0, 8).Draw(r, "retries"), Accepted: rapid.IntRange(0, 2).Draw(r, "accepted")}
		for i := range rapid.IntRange(1, 6).Draw(r, "recipients") {
			past.Waiting = append(past.Waiting, i)
			if rapid.Bool().Draw(r, "own") {
				o.Recipients = append(o.Recipients, delivery.RecipientOutcome{Ordinal: i, Verdict: rapid.SampledFrom(verdicts).Draw(r, "its"), Answer: answer("its answer")})
			}
		}
		d := p.Decide(o, past, rapid.Float64Range(0, high).Draw(r, "random"))
		if d.GiveBack {
			if o.Verdict != delivery.Interrupted || d.State != "" || len(d.Recipients) > 0 {
				r.Fatalf("%+v", d)
			}
			return
		}
		seen, accepted := map[int]bool{}, past.Accepted
		for _, x := range d.Recipients {
			if seen[x.Ordinal] || x.Ordinal < 0 || x.Ordinal >= len(past.Waiting) || x.Verdict != delivery.Accepted && x.Verdict != delivery.Refused {
				r.Fatalf("recipients %+v", d.Recipients)
			}
			seen[x.Ordinal] = true
			if x.Verdict == delivery.Accepted {
				accepted++
			}
		}
		open := len(past.Waiting) - len(seen)
		switch d.State {
		case delivery.Sent:
			if open > 0 || accepted == 0 {
				r.Fatalf("sent with %d waiting and %d accepted", open, accepted)
			}
		case delivery.Failed, delivery.Dead:
			if open > 0 || accepted > 0 || d.State == delivery.Dead && past.Retries < p.MaxRetries {
				r.Fatalf("%s with %d waiting, %d accepted, %d retries", d.State, open, accepted, past.Retries)
			}
		case delivery.Retry:
			if open == 0 || past.Retries >= p.MaxRetries || d.Delay <= 0 {
				r.Fatalf("retry with %d waiting after %d, in %s", open, past.Retries, d.Delay)
			}
		case delivery.Held:
			if open == 0 || p.OnUnknown != retry.UnknownHold {
				r.Fatalf("held with %d waiting", open)
			}
		default:
			r.Fatalf("state %q", d.State)
		}
		if !delivery.Legal(delivery.Pending, d.State) || !delivery.Legal(delivery.Retry, d.State) {
			r.Fatalf("%s is no legal move of an attempt", d.State)
		}
	})
}
