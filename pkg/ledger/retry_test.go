package ledger_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

var someone = delivery.Warrant{By: "ann", Why: "the server is back"}

// unprepared is accepted as failed, since it could not be prepared.
func (b *book) unprepared(tenant, id string) ledger.Acceptance {
	r := b.request(tenant, id)
	r.Prepared, r.Raw, r.Failure = nil, []byte(`{"version":1}`), &delivery.Answer{Category: delivery.Config, Code: "CONFIG_NOT_RESOLVABLE"}
	return r
}

func (b *book) retry(t testing.TB, ids ...delivery.ID) ledger.Carried {
	t.Helper()
	done, err := b.Retry(t.Context(), delivery.RetryCommand{IDs: ids, Warrant: someone})
	if err != nil {
		t.Fatal(err)
	}
	return done
}

func (b *book) effect(t testing.TB, done ledger.Carried, want delivery.Effect) {
	t.Helper()
	moved := 0
	for _, events := range done.Events {
		moved += len(events.Messages)
	}
	if len(done.Results) != 1 || done.Results[0].Effect != want || done.Results[0].Hint == "" || done.Done != moved || want.Done() != (moved == 1) {
		t.Fatalf("%+v with %d messages, want %s", done.CommandReport, moved, want)
	}
}

// ended is a delivery that one attempt has brought to a state.
func (b *book) ended(t testing.TB, state delivery.State, change ...func(*ledger.Settlement)) ledger.Claimed {
	t.Helper()
	k := b.one(t)
	verdict := delivery.Refused
	if state == delivery.Sent {
		verdict = delivery.Accepted
	}
	s := result(k, state, verdict)
	for _, r := range k.Recipients {
		if state.Final() {
			s.Decision.Recipients = append(s.Decision.Recipients, delivery.RecipientOutcome{Ordinal: r.Ordinal, Verdict: verdict})
		}
	}
	s.Decision.Delay = time.Hour
	for _, c := range change {
		c(&s)
	}
	b.settle(t, ledger.Moved, s)
	return k
}

func used(n int) func(*ledger.Settlement) {
	return func(s *ledger.Settlement) { s.Claimed.Retries = n }
}

// The rules of the seed's section "Manual retry", one after the other.

func TestRetryOfAPendingOne(t *testing.T) {
	t.Parallel()
	b := open(t)
	later := time.Now().Add(time.Hour)
	r := b.request("acme", "1")
	r.SendAt = &later
	b.accept(t, r)
	b.effect(t, b.retry(t, r.ID), delivery.EffectQueued)
	if s := b.status(t, r.ID); s.State != delivery.Retry || s.Retries != 1 || s.Version != 2 || len(b.claimAll(t, 10)) != 1 {
		t.Fatalf("%+v", s)
	}
}

func TestRetryGoesBackDueAtOnce(t *testing.T) {
	t.Parallel()
	for _, state := range []delivery.State{delivery.Retry, delivery.Failed, delivery.Dead, delivery.Held} {
		t.Run(string(state), func(t *testing.T) {
			t.Parallel()
			b := open(t)
			k := b.ended(t, state)
			before := b.status(t, k.ID)
			done := b.retry(t, k.ID)
			b.effect(t, done, delivery.EffectQueued)
			if want := []claim.Group{k.Group()}; !slices.Equal(done.Groups, want) {
				t.Errorf("groups %v, want %v", done.Groups, want)
			}
			var ev delivery.Event
			if err := json.Unmarshal(done.Events[0].Messages[0].Body, &ev); err != nil || ev.State != delivery.Retry || ev.Cause != "operator" || ev.Version != before.Version+1 || ev.DueAt == nil {
				t.Errorf("event %+v %v", ev, err)
			}
			if done.Events[0].Messages[0].Subject != "posthouse.event.delivery.retry.mail.acme" {
				t.Error(done.Events[0].Messages[0].Subject)
			}
			s := b.status(t, k.ID)
			if s.State != delivery.Retry || s.Version != before.Version+1 || s.Retries != before.Retries+1 || s.Recipients[0].State != delivery.RecipientPending {
				t.Errorf("%+v", s)
			}
			taken := b.claimAll(t, 10)
			if len(taken) != 1 || taken[0].Fence != k.Fence+1 || len(taken[0].Recipients) != 1 || string(taken[0].Prepared) != string(k.Prepared) {
				t.Fatalf("claimed %+v", taken)
			}
			b.settle(t, ledger.Moved, sent(taken[0]))
		})
	}
}

func TestRetryRefusesWhatWasSent(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.effect(t, b.retry(t, b.ended(t, delivery.Sent).ID), delivery.EffectSent)
}

func TestRetryRefusesWhatIsBeingSent(t *testing.T) {
	t.Parallel()
	b := open(t)
	k := b.one(t)
	b.effect(t, b.retry(t, k.ID), delivery.EffectInWork)
	b.settle(t, ledger.Moved, sent(k)) // and it did not disturb
}

func TestRetryRefusesWhatWasCalledBackAndWhatIsNotThere(t *testing.T) {
	t.Parallel()
	b := open(t)
	r := b.request("acme", "1")
	b.accept(t, r)
	if _, ended, err := b.Cancel(t.Context(), r.ID, "no"); err != nil || !ended {
		t.Fatal(ended, err)
	}
	b.effect(t, b.retry(t, r.ID), delivery.EffectFinal)
	b.effect(t, b.retry(t, delivery.NewID()), delivery.EffectNotFound)
}

func TestRetryOfManySkipsWhatMayNot(t *testing.T) {
	t.Parallel()
	b := open(t)
	failed, dead, done, work := b.ended(t, delivery.Failed), b.ended(t, delivery.Dead), b.ended(t, delivery.Sent), b.one(t)
	got := b.retry(t, dead.ID, done.ID, work.ID, failed.ID, dead.ID)
	want := []delivery.Effect{delivery.EffectQueued, delivery.EffectSent, delivery.EffectInWork, delivery.EffectQueued}
	if got.Done != 2 || got.Skipped != 2 || len(got.Results) != 4 || len(got.Events) != 1 || len(got.Events[0].Messages) != 2 {
		t.Fatalf("%+v", got)
	}
	for i, r := range got.Results {
		if r.Effect != want[i] {
			t.Errorf("result %d is %s, want %s", i, r.Effect, want[i])
		}
	}
}

func TestRetryAgainIsSafe(t *testing.T) {
	t.Parallel()
	b := open(t)
	k := b.ended(t, delivery.Dead)
	b.effect(t, b.retry(t, k.ID), delivery.EffectQueued)
	before := b.snapshot(t)
	b.effect(t, b.retry(t, k.ID), delivery.EffectDue)
	if after := b.snapshot(t); after != before {
		t.Fatalf("before %s\nafter  %s", before, after)
	}
}

func TestAUsedUpOneGetsOneChance(t *testing.T) {
	t.Parallel()
	b := open(t)
	policy := retry.Softa()
	k := b.ended(t, delivery.Dead, used(policy.MaxRetries))
	b.exec(t, "UPDATE delivery SET retries = $1", policy.MaxRetries)
	b.effect(t, b.retry(t, k.ID), delivery.EffectQueued)
	again := b.claimAll(t, 1)[0]
	d := policy.Decide(delivery.Outcome{Verdict: delivery.Refused, Answer: delivery.Answer{Category: delivery.Transient}},
		retry.Past{Retries: again.Retries, Waiting: []int{0}}, 0.5)
	if again.Retries != policy.MaxRetries+1 || d.State != delivery.Dead {
		t.Fatalf("retries %d, then %s", again.Retries, d.State)
	}
}

func TestOneWithRetriesLeftGoesOn(t *testing.T) {
	t.Parallel()
	b := open(t)
	k := b.ended(t, delivery.Failed)
	b.retry(t, k.ID)
	again := b.claimAll(t, 1)[0]
	d := retry.Softa().Decide(delivery.Outcome{Verdict: delivery.Refused, Answer: delivery.Answer{Category: delivery.Transient}},
		retry.Past{Retries: again.Retries, Waiting: []int{0}}, 0.5)
	if again.Retries != 1 || d.State != delivery.Retry {
		t.Fatalf("retries %d, then %s", again.Retries, d.State)
	}
}

func TestRetryPreparesAfresh(t *testing.T) {
	t.Parallel()
	b := open(t)
	r := b.unprepared("acme", "1")
	b.accept(t, r)
	b.effect(t, b.retry(t, r.ID), delivery.EffectQueued)
	k := b.claimAll(t, 10)[0]
	if k.ID != r.ID || k.IsPrepared || string(k.Request) != string(r.Raw) || k.Lane == b.lane {
		t.Fatalf("claimed %+v", k)
	}
	content := ledger.Content{Prepared: []byte("content"), Recipients: []string{"a@example.test", "b@example.test"}, Lane: b.lane}
	for _, want := range []bool{true, false} { // the second is a repeat after a lost answer
		if done, err := b.Prepare(t.Context(), k, content); err != nil || done.Stored != want {
			t.Fatal(done.Stored, err)
		}
	}
	s := b.status(t, r.ID)
	if s.State != delivery.Retry || s.Version != 2 || s.Attempts != 0 || s.Lane != "mail$test" || len(s.Recipients) != 2 {
		t.Fatalf("%+v", s)
	}
	again := b.claimAll(t, 10)[0]
	if !again.IsPrepared || again.Lane != b.lane || string(again.Prepared) != "content" || again.Request != nil || again.Fence != k.Fence+1 {
		t.Fatalf("claimed %+v", again)
	}
	b.settle(t, ledger.Moved, sent(again))
}

func TestWhatCannotBePreparedAgainFailsAgain(t *testing.T) {
	t.Parallel()
	b := open(t)
	r := b.unprepared("acme", "1")
	b.accept(t, r)
	for n := 1; n <= 2; n++ {
		b.effect(t, b.retry(t, r.ID), delivery.EffectQueued)
		k := b.claimAll(t, 10)[0]
		b.settle(t, ledger.Moved, ledger.Settlement{Claimed: k, Cause: "cannot be prepared", Decision: retry.Decision{State: delivery.Failed, Answer: *r.Failure}})
		if s := b.status(t, r.ID); s.State != delivery.Failed || s.Attempts != 0 || s.Retries != n || s.Version != 1+2*n {
			t.Fatalf("%+v", s)
		}
	}
}

func TestRetryLeavesAcceptedRecipientsAlone(t *testing.T) {
	t.Parallel()
	b := open(t)
	k := b.one(t, func(a *ledger.Acceptance) { a.Recipients = []string{"a@x.test", "b@x.test", "c@x.test"} })
	s := result(k, delivery.Held, delivery.Unknown, delivery.RecipientOutcome{Ordinal: 0, Verdict: delivery.Accepted},
		delivery.RecipientOutcome{Ordinal: 1, Verdict: delivery.Refused})
	b.settle(t, ledger.Moved, s)
	b.effect(t, b.retry(t, k.ID), delivery.EffectQueued)
	again := b.claimAll(t, 1)[0]
	if len(again.Recipients) != 2 || again.Recipients[0].Ordinal != 1 || again.Accepted != 1 {
		t.Fatalf("%+v", again)
	}
}

func TestRetryOfAnExpiredOneNeedsANewTime(t *testing.T) {
	t.Parallel()
	b := open(t)
	past, later := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
	for _, c := range []struct {
		name   string
		expiry delivery.Expiry
		want   delivery.Effect
	}{
		{"none", delivery.Expiry{}, delivery.EffectExpired}, {"past", delivery.Expiry{ExpiresAt: &past}, delivery.EffectExpired},
		{"new", delivery.Expiry{ExpiresAt: &later}, delivery.EffectQueued}, {"taken away", delivery.Expiry{NoExpiry: true}, delivery.EffectQueued},
	} {
		for _, swept := range []bool{true, false} {
			r := b.request("acme", fmt.Sprint(c.name, swept))
			r.ExpiresAt = &past
			b.accept(t, r)
			if swept {
				if _, ended, err := b.Expire(t.Context(), r.ID); err != nil || !ended {
					t.Fatal(ended, err)
				}
			}
			done, err := b.Retry(t.Context(), delivery.RetryCommand{IDs: []delivery.ID{r.ID}, Warrant: someone, Expiry: c.expiry})
			if err != nil {
				t.Fatal(err)
			}
			b.effect(t, done, c.want)
			if !c.want.Done() {
				continue
			}
			for _, k := range b.claimAll(t, 1000) {
				if k.ID == r.ID && (k.Expired || (k.ExpiresAt == nil) != c.expiry.NoExpiry) {
					t.Errorf("%s: %+v", c.name, k)
				}
			}
			if s := b.status(t, r.ID); !s.InWork || (s.ExpiresAt == nil) != c.expiry.NoExpiry {
				t.Errorf("%s: %+v", c.name, s)
			}
		}
	}
}

func TestARetriedOneGoesToTheEndOfItsLine(t *testing.T) {
	t.Parallel()
	b := open(t)
	first, second := b.ordered("acme", "k", "1"), b.ordered("acme", "k", "2")
	b.accept(t, first, second)
	k := b.claimAll(t, 10)[0]
	b.settle(t, ledger.Moved, result(k, delivery.Failed, delivery.Refused, delivery.RecipientOutcome{Verdict: delivery.Refused}))
	b.effect(t, b.retry(t, first.ID), delivery.EffectQueued)
	b.gate(t, first.ID, "blocked")
	if gate := b.status(t, first.ID).Gate; gate.Why != "an older delivery of the same ordering key is not finished: "+second.ID.String() {
		t.Error(gate)
	}
	b.effect(t, b.retry(t, first.ID), delivery.EffectDue)
	next := b.claimAll(t, 10)
	if len(next) != 1 || next[0].ID != second.ID {
		t.Fatalf("%+v", next)
	}
	b.settle(t, ledger.Moved, sent(next[0]))
	if next = b.claimAll(t, 10); len(next) != 1 || next[0].ID != first.ID {
		t.Fatalf("%+v", next)
	}
}

func TestCancelOfManyReleasesTheNextOfTheirKeys(t *testing.T) {
	t.Parallel()
	b := open(t)
	first, second, third := b.ordered("acme", "k", "1"), b.ordered("acme", "k", "2"), b.ordered("acme", "k", "3")
	b.accept(t, first, second, third)
	done, err := b.CancelAll(t.Context(), delivery.CancelCommand{IDs: []delivery.ID{first.ID, second.ID}, Warrant: someone})
	if err != nil || done.Done != 2 || done.Results[0].Effect != delivery.EffectCancelled {
		t.Fatalf("%+v %v", done, err)
	}
	if k := b.claimAll(t, 10); len(k) != 1 || k[0].ID != third.ID {
		t.Fatalf("%+v", k)
	}
	again, err := b.CancelAll(t.Context(), delivery.CancelCommand{IDs: []delivery.ID{first.ID, third.ID, b.ended(t, delivery.Sent).ID}, Warrant: someone})
	if err != nil || again.Done != 0 || again.Results[0].Effect != delivery.EffectFinal || again.Results[1].Effect != delivery.EffectInWork || again.Results[2].Effect != delivery.EffectSent {
		t.Fatalf("%+v %v", again, err)
	}
}

func TestAHeldOneIsSettledByHand(t *testing.T) {
	t.Parallel()
	b := open(t)
	partly := b.one(t, func(a *ledger.Acceptance) { a.Recipients = []string{"a@x.test", "b@x.test"} })
	b.settle(t, ledger.Moved, result(partly, delivery.Held, delivery.Unknown, delivery.RecipientOutcome{Ordinal: 0, Verdict: delivery.Accepted}))
	plain := func() delivery.ID { return b.ended(t, delivery.Held).ID }
	for _, c := range []struct {
		name      string
		id        delivery.ID
		as, want  delivery.State
		recipient delivery.RecipientState // the last one
	}{
		{"arrived", plain(), delivery.Sent, delivery.Sent, delivery.RecipientAccepted},
		{"did not", plain(), delivery.Failed, delivery.Failed, delivery.RecipientRefused},
		{"did not arrive at the rest", partly.ID, delivery.Failed, delivery.Sent, delivery.RecipientRefused},
	} {
		order := delivery.SettleCommand{IDs: []delivery.ID{c.id}, As: c.as, Warrant: someone}
		done, err := b.SettleHeld(t.Context(), order)
		if err != nil {
			t.Fatal(err)
		}
		b.effect(t, done, delivery.EffectSettled)
		if s := b.status(t, c.id); s.State != c.want || s.Recipients[len(s.Recipients)-1].State != c.recipient || s.Gate.Name != "final" {
			t.Errorf("%s: %+v", c.name, s)
		}
		done, err = b.SettleHeld(t.Context(), order)
		if err != nil {
			t.Fatal(err)
		}
		b.effect(t, done, delivery.EffectNotHeld)
	}
}

// Eight press at once, a worker claims meanwhile: one retry, one attempt.
func TestRetryBesideItselfAndAClaim(t *testing.T) {
	t.Parallel()
	b := open(t)
	for round := range 15 {
		state := []delivery.State{delivery.Dead, delivery.Retry, delivery.Held}[round%3]
		k := b.ended(t, state)
		w := b.join(t, time.Minute)
		var mu sync.Mutex
		var wg sync.WaitGroup
		effects := map[delivery.Effect]int{}
		var taken []ledger.Claimed
		for range 8 {
			wg.Go(func() {
				done, err := b.Retry(t.Context(), delivery.RetryCommand{IDs: []delivery.ID{k.ID}, Warrant: someone})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				effects[done.Results[0].Effect]++
				mu.Unlock()
			})
		}
		for range 3 {
			wg.Go(func() {
				got, _, err := b.work.Claim(t.Context(), w, []claim.Turn{{Group: b.group("acme"), N: 10}})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				taken = append(taken, got...)
				mu.Unlock()
			})
		}
		wg.Wait()
		if len(taken) == 0 {
			taken = b.claim(t, w, 10, "acme")
		}
		s := b.status(t, k.ID)
		if effects[delivery.EffectQueued] != 1 || effects[delivery.EffectDue]+effects[delivery.EffectInWork] != 7 || len(taken) != 1 || s.Version != 3 {
			t.Fatalf("%s: effects %v, claimed %d, version %d", state, effects, len(taken), s.Version)
		}
		b.settle(t, ledger.Moved, sent(taken[0]))
	}
	if n := b.count(t, "SELECT count(*) FROM event"); n != 15*4 {
		t.Errorf("%d events", n)
	}
}

// A late success of the attempt before still counts after a retry by hand.
func TestALateSuccessAfterARetry(t *testing.T) {
	t.Parallel()
	b := open(t)
	k := b.one(t)
	b.settle(t, ledger.Moved, unknown(k, delivery.Dead))
	b.retry(t, k.ID)
	accepted, _, err := b.Late(t.Context(), sent(k))
	if err != nil || !accepted || len(b.claimAll(t, 10)) != 0 {
		t.Fatal(accepted, err)
	}
}

func (m *model) command(r *rapid.T) {
	if len(m.order) == 0 {
		return
	}
	id := rapid.SampledFrom(m.order).Draw(r, "delivery")
	l := m.all[id]
	inWork := m.count(m.t, "SELECT count(*) FROM queue WHERE id = $1 AND state = 'leased'", [16]byte(id)) == 1
	final := l.state.Final()
	var done ledger.Carried
	var err error
	to := rapid.SampledFrom([]delivery.State{delivery.Retry, delivery.Retry, delivery.Cancelled, delivery.Sent, delivery.Failed}).Draw(r, "order")
	switch ids := []delivery.ID{id}; to {
	case delivery.Retry:
		done, err = m.Retry(m.t.Context(), delivery.RetryCommand{IDs: ids, Warrant: someone, Expiry: delivery.Expiry{NoExpiry: rapid.Bool().Draw(r, "no expiry")}})
	case delivery.Cancelled:
		done, err = m.CancelAll(m.t.Context(), delivery.CancelCommand{IDs: ids, Warrant: someone})
	default:
		done, err = m.SettleHeld(m.t.Context(), delivery.SettleCommand{IDs: ids, Warrant: someone, As: to})
		if to == delivery.Failed && m.count(m.t, "SELECT count(*) FROM recipient WHERE delivery_id = $1 AND state = 'accepted'", [16]byte(id)) > 0 {
			to = delivery.Sent
		}
	}
	if err != nil || len(done.Results) != 1 {
		m.fatal(r, "%s of %+v: %+v %v", to, l, done, err)
	}
	e := done.Results[0].Effect
	if e.Done() != (done.Done == 1) || e.Done() && inWork || e.Done() && !delivery.Legal(l.state, to) || (e == delivery.EffectInWork) != inWork {
		m.fatal(r, "%s of %+v (in work %v): %s", to, l, inWork, e)
	}
	if e.Done() {
		m.moved(id, to, false)
		if final { // it stands at the end of its line now
			m.order = append(slices.DeleteFunc(m.order, func(have delivery.ID) bool { return have == id }), id)
		}
	}
}

// prepare is what a sender does with what it finds on the lane "prepare".
func (m *model) prepare(r *rapid.T) {
	lane, err := m.Lane(m.t.Context(), ledger.PrepareLane, "delivery")
	if err != nil {
		m.fatal(r, "lane: %v", err)
	}
	g := m.group("a")
	g.Lane = lane
	taken, _, err := m.work.Claim(m.t.Context(), m.worker(r), []claim.Turn{{Group: g, N: 1}})
	if err != nil || len(taken) == 0 {
		return
	}
	c := taken[0]
	m.all[c.ID].fence = c.Fence
	if rapid.Bool().Draw(r, "can be") {
		if done, err := m.Prepare(m.t.Context(), c, ledger.Content{Prepared: []byte("x"), Recipients: []string{"a@x.test"}, Lane: m.lane}); err != nil || !done.Stored {
			m.fatal(r, "prepare: %v %v", done.Stored, err)
		}
		return
	}
	results, _, err := m.Settle(m.t.Context(), []ledger.Settlement{{Claimed: c, Cause: "cannot be prepared", Decision: retry.Decision{State: delivery.Failed, Answer: delivery.Answer{Code: "CONTENT_INVALID"}}}})
	if err != nil || results[0] != ledger.Moved {
		m.fatal(r, "not preparable: %v %v", results, err)
	}
	m.moved(c.ID, delivery.Failed, false)
}

func TestCommandsAgainstTheModel(t *testing.T) {
	t.Parallel()
	b := open(t)
	rapid.Check(t, func(r *rapid.T) {
		b.exec(t, `TRUNCATE queue, request_key, delivery, content, recipient, attempt, event, outbox, worker`)
		m := &model{book: b, t: t, policy: retry.Policy{Base: time.Second, Multiplier: 1, Cap: time.Second, MaxRetries: 2},
			bodies: map[[2]string][32]byte{}, ids: map[[2]string]delivery.ID{}, all: map[delivery.ID]*life{}, workers: map[uuid.UUID][]ledger.Claimed{}}
		for range 3 {
			m.names = append(m.names, b.join(t, time.Hour))
		}
		r.Repeat(map[string]func(*rapid.T){
			"accept": m.accept, "claim": m.claim, "settle": m.settleSome, "settle more": m.settleSome, "give back": m.giveBack, "crash": m.crash,
			"sweep": m.sweep, "late": m.late, "look": m.look, "expire": m.expire, "command": m.command, "command more": m.command, "prepare": m.prepare,
			"": m.check,
		})
	})
}
