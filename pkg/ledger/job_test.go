package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
)

const term = time.Minute

// bury ends n deliveries in a state and archives their letters, as the
// dead-letter service does.
func (b *book) bury(t testing.TB, n int, tenant string, state delivery.State, code string) []delivery.ID {
	t.Helper()
	b.acceptMany(t, tenant, n)
	var ids []delivery.ID
	var letters []ledger.DeadLetter
	var batch []ledger.Settlement
	for _, k := range b.claim(t, b.join(t, term), n, tenant) {
		s := result(k, state, delivery.Refused, delivery.RecipientOutcome{Verdict: delivery.Refused})
		s.Decision.Answer = delivery.Answer{Category: delivery.Permanent, Code: code}
		batch, ids = append(batch, s), append(ids, k.ID)
	}
	_, events, err := b.Settle(t.Context(), batch)
	if err != nil || len(ids) != n {
		t.Fatal(len(ids), err)
	}
	for _, m := range events.Messages {
		var ev delivery.Event
		if err := json.Unmarshal(m.Body, &ev); err != nil {
			t.Fatal(err)
		}
		letters = append(letters, ledger.DeadLetter{Letter: delivery.Letter{EventID: ev.Event, Source: "send_failed", Channel: "mail", Tenant: tenant, ID: &ev.ID, Reason: "no"}})
	}
	if _, err := b.Archive(t.Context(), letters); err != nil {
		t.Fatal(err)
	}
	return ids
}

func (b *book) start(t testing.TB, c delivery.JobCommand) *delivery.Job {
	t.Helper()
	c.Warrant = someone
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	job, err := b.StartJob(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

// take takes the job for an owner.
func (b *book) take(t testing.TB, owner string, want delivery.ID) {
	t.Helper()
	localtest.Eventually(t, 10*time.Second, func() error { // a step that was killed may still hold the row
		id, _, found, err := b.TakeJob(t.Context(), owner, term)
		if err != nil || !found || id != want {
			return fmt.Errorf("took %s, %v, %w", id, found, err)
		}
		return nil
	})
}

// finish steps a job to its end and returns how many steps it took.
func (b *book) finish(t testing.TB, job delivery.ID, owner string, limit, scan int) (steps int) {
	t.Helper()
	for {
		step, err := b.StepJob(t.Context(), job, owner, term, limit, scan)
		if err != nil {
			t.Fatal(err)
		}
		if steps++; step.End {
			return steps
		}
		if len(step.Results) > limit || step.Seen > scan {
			t.Fatalf("a step of %d among %d did %d among %d", limit, scan, len(step.Results), step.Seen)
		}
	}
}

func (b *book) job(t testing.TB, id delivery.ID) *delivery.Job {
	t.Helper()
	job, err := b.Job(t.Context(), delivery.JobLookup{ID: id, Results: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func TestAJobFindsWhatItsFilterSays(t *testing.T) {
	t.Parallel()
	b := open(t)
	failed := b.bury(t, 5, "acme", delivery.Failed, "550")
	dead := b.bury(t, 4, "globex", delivery.Dead, "451")
	config := b.bury(t, 3, "initech", delivery.Failed, "CONFIG_NOT_RESOLVABLE")
	b.acceptMany(t, "waits", 2)
	sentOne := b.ended(t, delivery.Sent)
	waiting := b.ended(t, delivery.Retry) // of acme
	middle := dead[0].Time()
	for _, c := range []struct {
		name   string
		kind   delivery.JobKind
		filter delivery.JobFilter
		want   int
	}{
		{"all failures", delivery.JobRetry, delivery.JobFilter{}, 12},
		{"a tenant", delivery.JobRetry, delivery.JobFilter{Tenant: "acme"}, 5},
		{"a channel", delivery.JobRetry, delivery.JobFilter{Channel: "sms"}, 0},
		{"a state", delivery.JobRetry, delivery.JobFilter{States: []delivery.State{delivery.Dead}}, 4},
		{"a code", delivery.JobRetry, delivery.JobFilter{Code: "CONFIG_NOT_RESOLVABLE"}, 3},
		{"a category", delivery.JobRetry, delivery.JobFilter{Category: delivery.Permanent}, 12},
		{"a prefix", delivery.JobRetry, delivery.JobFilter{RequestID: "1"}, 3},
		{"no pattern", delivery.JobRetry, delivery.JobFilter{RequestID: "%"}, 0},
		{"from", delivery.JobRetry, delivery.JobFilter{AcceptedFrom: &middle}, 7},
		{"to", delivery.JobRetry, delivery.JobFilter{AcceptedTo: &middle}, 5},
		{"what waits", delivery.JobRetry, delivery.JobFilter{States: []delivery.State{delivery.Retry}}, 1},
		{"both", delivery.JobRetry, delivery.JobFilter{States: []delivery.State{delivery.Retry, delivery.Failed}, Tenant: "acme"}, 6},
		{"cancel what waits", delivery.JobCancel, delivery.JobFilter{}, 3},
		{"cancel of a tenant", delivery.JobCancel, delivery.JobFilter{Tenant: "waits"}, 2},
	} {
		command := delivery.JobCommand{Kind: c.kind, Filter: c.filter, DryRun: true}
		if err := command.Check(); err != nil {
			t.Fatal(c.name, err)
		}
		got, err := b.CountJob(t.Context(), command)
		if err != nil || got != (delivery.JobCount{Count: c.want, Complete: true}) {
			t.Errorf("%s: %+v %v, want %d", c.name, got, err, c.want)
		}
	}
	job := b.start(t, delivery.JobCommand{Kind: delivery.JobRetry, Filter: delivery.JobFilter{Tenant: "acme", States: []delivery.State{delivery.Retry, delivery.Failed}}})
	if job.State != delivery.JobRunning || job.Total != (delivery.JobCount{Count: 6, Complete: true}) || job.Rate != delivery.DefaultJobRate {
		t.Fatalf("%+v", job)
	}
	b.take(t, "me", job.ID)
	if steps := b.finish(t, job.ID, "me", 2, 3); steps < 4 {
		t.Errorf("%d steps", steps)
	}
	job = b.job(t, job.ID)
	var touched []delivery.ID
	for _, r := range job.Results {
		touched = append(touched, r.ID)
	}
	if job.State != delivery.JobDone || job.Done != 6 || job.Skipped != 0 || !slices.Equal(sorted(touched), sorted(append([]delivery.ID{waiting.ID}, failed...))) {
		t.Fatalf("%+v", job)
	}
	for _, id := range append(dead, config...) {
		if s := b.status(t, id); s.Version != 2 {
			t.Errorf("%s was touched: %+v", id, s)
		}
	}
	if s := b.status(t, sentOne.ID); s.Version != 2 {
		t.Error(s)
	}
}

func sorted(in []delivery.ID) []delivery.ID {
	return slices.SortedFunc(slices.Values(in), func(a, b delivery.ID) int { return slices.Compare(a[:], b[:]) })
}

func TestAJobCancelsWhatWaits(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.acceptMany(t, "acme", 30)
	inWork := b.claim(t, b.join(t, term), 4, "acme")
	job := b.start(t, delivery.JobCommand{Kind: delivery.JobCancel, Filter: delivery.JobFilter{Tenant: "acme"}})
	b.take(t, "me", job.ID)
	b.finish(t, job.ID, "me", 7, 9)
	if job = b.job(t, job.ID); job.Done != 26 || job.Skipped != 4 || len(job.Results) != 30 {
		t.Fatalf("%+v", job)
	}
	b.settle(t, ledger.Moved, sent(inWork[0]))
}

// A job is killed between any two statements; whoever takes it goes on, and no
// delivery is moved twice or left out.
func TestAJobThatIsKilledGoesOnAndRepeatsNothing(t *testing.T) {
	t.Parallel()
	b := open(t)
	const n = 40
	ids := b.bury(t, n, "acme", delivery.Failed, "550")
	job := b.start(t, delivery.JobCommand{Kind: delivery.JobRetry})
	kills := 0
	for life := 0; ; life++ {
		owner := fmt.Sprint("owner", life)
		b.take(t, owner, job.ID)
		ctx, cancel := context.WithCancel(t.Context())
		killed := make(chan struct{})
		go func() {
			defer close(killed)
			timer := time.NewTimer(time.Duration(3*life) * time.Millisecond)
			defer timer.Stop()
			<-timer.C
			cancel()
		}()
		var end bool
		for err := error(nil); err == nil && !end; {
			var step ledger.Step
			step, err = b.StepJob(ctx, job.ID, owner, term, 4, 10)
			end = step.End
		}
		cancel()
		<-killed
		if end || b.job(t, job.ID).State == delivery.JobDone {
			break
		}
		kills++
		b.exec(t, "UPDATE operation_job SET lease_until = now() - interval '1 second'") // its lease runs out
	}
	job = b.job(t, job.ID)
	if job.Done != n || job.Skipped != 0 || len(job.Results) != n || kills == 0 {
		t.Fatalf("after %d kills: %+v", kills, job)
	}
	for _, id := range ids {
		if s := b.status(t, id); s.Version != 3 || s.Retries != 1 || s.State != delivery.Retry {
			t.Errorf("%+v", s)
		}
	}
	if n := b.count(t, "SELECT count(*) FROM queue"); n != len(ids) {
		t.Errorf("%d in the queue", n)
	}
}

func TestTwoOwnersNeverWorkOnOneJob(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.bury(t, 40, "acme", delivery.Failed, "550")
	job := b.start(t, delivery.JobCommand{Kind: delivery.JobRetry})
	b.take(t, "first", job.ID)
	if _, _, found, err := b.TakeJob(t.Context(), "second", term); err != nil || found {
		t.Fatal(found, err)
	}
	if _, err := b.StepJob(t.Context(), job.ID, "second", term, 1, 10); !errors.Is(err, ledger.ErrJobGone) {
		t.Fatal(err)
	}
	b.exec(t, "UPDATE operation_job SET lease_until = now() - interval '1 second'")
	if _, err := b.StepJob(t.Context(), job.ID, "first", term, 1, 10); !errors.Is(err, ledger.ErrJobGone) {
		t.Fatal("a lapsed owner goes on:", err)
	}
	b.take(t, "second", job.ID)
	b.finish(t, job.ID, "second", 10, 10)
	if got := b.job(t, job.ID); got.Done != 40 {
		t.Fatalf("%+v", got)
	}
}

func TestAJobIsPausedResumedAndCancelled(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.bury(t, 10, "acme", delivery.Failed, "550")
	job := b.start(t, delivery.JobCommand{Kind: delivery.JobRetry})
	turn := func(want delivery.JobState) error {
		_, err := b.TurnJob(t.Context(), delivery.JobControl{ID: job.ID, Warrant: someone}, want)
		return err
	}
	b.take(t, "me", job.ID)
	if _, err := b.StepJob(t.Context(), job.ID, "me", term, 3, 10); err != nil {
		t.Fatal(err)
	}
	for range 2 { // pressing again is safe
		if err := turn(delivery.JobPaused); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.StepJob(t.Context(), job.ID, "me", term, 3, 10); !errors.Is(err, ledger.ErrJobGone) {
		t.Fatal(err)
	}
	if _, _, found, _ := b.TakeJob(t.Context(), "me", term); found {
		t.Fatal("a paused job is taken")
	}
	if err := turn(delivery.JobRunning); err != nil {
		t.Fatal(err)
	}
	b.take(t, "other", job.ID)
	if _, err := b.StepJob(t.Context(), job.ID, "other", term, 3, 10); err != nil {
		t.Fatal(err)
	}
	if err := turn(delivery.JobCancelled); err != nil {
		t.Fatal(err)
	}
	var state *ledger.JobStateError
	if err := turn(delivery.JobRunning); !errors.As(err, &state) || state.Is != delivery.JobCancelled {
		t.Fatal(err)
	}
	if got := b.job(t, job.ID); got.State != delivery.JobCancelled || got.Done != 6 {
		t.Fatalf("%+v", got)
	}
	if _, err := b.TurnJob(t.Context(), delivery.JobControl{ID: delivery.NewID(), Warrant: someone}, delivery.JobPaused); !errors.Is(err, ledger.ErrNoJob) {
		t.Fatal(err)
	}
	got, err := b.Audit(t.Context(), delivery.AuditFilter{Target: job.ID.String()})
	var actions []string
	for _, e := range got {
		actions = append(actions, e.Action+" "+e.Result)
	}
	want := []string{"job.cancel cancelled", "job.resume running", "job.pause was paused", "job.pause paused", "job.start retry of 10"}
	if err != nil || !slices.Equal(actions, want) {
		t.Fatalf("%q %v", actions, err)
	}
}

// A row that the database refuses stands alone: the others go on.
func TestARefusedRowIsAResultAndNotTheEndOfTheJob(t *testing.T) {
	t.Parallel()
	b := open(t)
	ids := b.bury(t, 9, "acme", delivery.Failed, "550")
	b.exec(t, "INSERT INTO event (aggregate, version, kind, state, subject, body) VALUES ($1, 3, 'delivery', 'retry', 's', '')", [16]byte(ids[4]))
	job := b.start(t, delivery.JobCommand{Kind: delivery.JobRetry})
	b.take(t, "me", job.ID)
	b.finish(t, job.ID, "me", 9, 20)
	job = b.job(t, job.ID)
	if job.Done != 8 || job.Failed != 1 || job.Skipped != 0 || job.State != delivery.JobDone {
		t.Fatalf("%+v", job)
	}
	for _, r := range job.Results {
		if (r.Effect == delivery.EffectError) != (r.ID == ids[4]) {
			t.Errorf("%+v", r)
		}
	}
	if s := b.status(t, ids[4]); s.State != delivery.Failed || s.Version != 2 {
		t.Errorf("%+v", s)
	}
}

func TestTheAuditIsInTheTransactionOfItsAction(t *testing.T) {
	t.Parallel()
	b := open(t)
	b.exec(t, "ALTER TABLE audit ADD CONSTRAINT broken CHECK (who <> 'eve')")
	k, held := b.ended(t, delivery.Failed), b.ended(t, delivery.Held)
	eve := delivery.Warrant{By: "eve", Why: "x"}
	if _, err := b.Archive(t.Context(), []ledger.DeadLetter{{Letter: delivery.Letter{EventID: "e.1", Source: "poison", Channel: "_", Tenant: "_", Reason: "no"}}}); err != nil {
		t.Fatal(err)
	}
	job := b.start(t, delivery.JobCommand{Kind: delivery.JobRetry})
	before := b.snapshot(t)
	for name, do := range map[string]func(delivery.Warrant) error{
		"retry": func(w delivery.Warrant) error {
			_, err := b.Retry(t.Context(), delivery.RetryCommand{IDs: []delivery.ID{k.ID}, Warrant: w})
			return err
		},
		"cancel": func(w delivery.Warrant) error {
			_, err := b.CancelAll(t.Context(), delivery.CancelCommand{IDs: []delivery.ID{held.ID}, Warrant: w})
			return err
		},
		"settle": func(w delivery.Warrant) error {
			_, err := b.SettleHeld(t.Context(), delivery.SettleCommand{IDs: []delivery.ID{held.ID}, As: delivery.Sent, Warrant: w})
			return err
		},
		"triage": func(w delivery.Warrant) error {
			_, err := b.Triage(t.Context(), delivery.TriageCommand{EventIDs: []string{"e.1"}, As: "resolved", Warrant: w})
			return err
		},
		"job.start": func(w delivery.Warrant) error {
			c := delivery.JobCommand{Kind: delivery.JobRetry, Warrant: w}
			if err := c.Check(); err != nil {
				t.Fatal(err)
			}
			_, err := b.StartJob(t.Context(), c)
			return err
		},
		"job.pause": func(w delivery.Warrant) error {
			_, err := b.TurnJob(t.Context(), delivery.JobControl{ID: job.ID, Warrant: w}, delivery.JobPaused)
			return err
		},
	} {
		if err := do(eve); err == nil {
			t.Errorf("%s without its audit", name)
		}
	}
	if after := b.snapshot(t); after != before {
		t.Errorf("before %s\nafter  %s", before, after)
	}
	if n := b.count(t, "SELECT (SELECT count(*) FROM operation_job WHERE state = 'running') + (SELECT count(*) FROM dead_letter WHERE triage = 'open')"); n != 2 {
		t.Errorf("%d: a job or a letter moved without its audit", n)
	}
}

func TestTheAuditTellsWhoAndWhy(t *testing.T) {
	t.Parallel()
	b := open(t)
	ids := b.bury(t, 2, "acme", delivery.Failed, "550")
	b.retry(t, ids[0], ids[0])
	b.retry(t, ids[0], delivery.NewID())
	job := b.start(t, delivery.JobCommand{Kind: delivery.JobRetry})
	b.take(t, "me", job.ID)
	b.finish(t, job.ID, "me", 10, 10)
	all, err := b.Audit(t.Context(), delivery.AuditFilter{})
	if err != nil || len(all) != 4 || all[3].By != "ann" || all[3].Why != someone.Why || all[3].Target != ids[0].String() || all[3].Result != "queued" || all[3].At.IsZero() {
		t.Fatalf("%+v %v", all, err)
	}
	rest, err := b.Audit(t.Context(), delivery.AuditFilter{Before: &all[1].ID, Limit: 1})
	if err != nil || len(rest) != 1 || rest[0] != all[2] {
		t.Fatalf("%+v %v", rest, err)
	}
	// Of a delivery: its own, and that of the job that touched it.
	for id, want := range map[delivery.ID]int{ids[0]: 2, ids[1]: 1} {
		if got, err := b.Audit(t.Context(), delivery.AuditFilter{Target: id.String()}); err != nil || len(got) != want {
			t.Errorf("%d entries, want %d: %+v %v", len(got), want, got, err)
		}
	}
	for _, f := range []delivery.AuditFilter{{By: "bob"}, {Action: "cancel"}, {Target: "x"}} {
		if got, err := b.Audit(t.Context(), f); err != nil || len(got) != 0 {
			t.Errorf("%+v: %+v %v", f, got, err)
		}
	}
}

func TestTriageMarksALetterOnce(t *testing.T) {
	t.Parallel()
	b := open(t)
	ids := b.bury(t, 1, "acme", delivery.Failed, "550")
	letter := delivery.EventID(ids[0], 2)
	triage := func(as string) delivery.TriageResult {
		got, err := b.Triage(t.Context(), delivery.TriageCommand{EventIDs: []string{letter, "none"}, As: as, Warrant: someone})
		if err != nil || len(got.Results) != 2 || got.Results[1].Triage != "not_found" {
			t.Fatalf("%+v %v", got, err)
		}
		return got.Results[0]
	}
	for _, c := range []struct {
		as      string
		changed bool
	}{{"resolved", true}, {"resolved", false}, {"discarded", false}} {
		if got := triage(c.as); got.Triage != "resolved" || got.Changed != c.changed {
			t.Errorf("%s: %+v", c.as, got)
		}
	}
	if s := b.status(t, ids[0]); s.State != delivery.Failed || s.Version != 2 {
		t.Errorf("triage moved the delivery: %+v", s)
	}
	// A new death is a new letter.
	b.retry(t, ids[0])
	k := b.claimAll(t, 1)[0]
	b.settle(t, ledger.Moved, result(k, delivery.Dead, delivery.Refused))
	if _, err := b.Archive(t.Context(), []ledger.DeadLetter{{Letter: delivery.Letter{EventID: delivery.EventID(ids[0], 4), Source: "send_exhausted", Channel: "mail", Tenant: "acme", ID: &ids[0], Reason: "no"}}}); err != nil {
		t.Fatal(err)
	}
	letters, err := b.DeadLetters(t.Context(), delivery.LetterFilter{})
	if err != nil || len(letters) != 2 || letters[0].Triage != "open" || letters[1].Remark != someone.Why {
		t.Fatalf("%+v %v", letters, err)
	}
}

// A job beside senders that claim and end what it retries, and beside a second
// job over the same deliveries.
func TestJobsBesideClaims(t *testing.T) {
	t.Parallel()
	b := open(t)
	const n = 80
	b.bury(t, n, "acme", delivery.Failed, "550")
	one, two := b.start(t, delivery.JobCommand{Kind: delivery.JobRetry}), b.start(t, delivery.JobCommand{Kind: delivery.JobRetry})
	b.take(t, "a", one.ID)
	b.take(t, "b", two.ID)
	var jobs, senders sync.WaitGroup
	jobs.Go(func() { b.finish(t, one.ID, "a", 7, 20) })
	jobs.Go(func() { b.finish(t, two.ID, "b", 5, 20) })
	over := make(chan struct{})
	w := b.join(t, term)
	senders.Go(func() {
		for last := false; !last; {
			select {
			case <-over:
				last = true
			default:
			}
			for _, k := range b.claim(t, w, 10, "acme") {
				b.settle(t, ledger.Moved, sent(k))
			}
		}
	})
	jobs.Wait()
	close(over)
	senders.Wait()
	for _, k := range b.claimAll(t, n) {
		b.settle(t, ledger.Moved, sent(k))
	}
	one, two = b.job(t, one.ID), b.job(t, two.ID)
	if one.Done+two.Done != n || b.count(t, "SELECT count(*) FROM delivery WHERE state = 'sent' AND retries = 1 AND version = 4") != n {
		t.Fatalf("%+v\n%+v", one, two)
	}
}
