package house_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/client"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/local/localtest"
	"github.com/posthouse-io/posthouse/services/house/housetest"
)

var operator = delivery.Warrant{By: "ann", Why: "the cause is mended"}

func operatorOf(t *testing.T, s *housetest.Site) *client.Client {
	t.Helper()
	c, err := client.New(s.NATS, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// status waits for a state of a request.
func status(t *testing.T, c *client.Client, id string, want delivery.State, version int) *delivery.Status {
	t.Helper()
	var got *delivery.Status
	localtest.Eventually(t, 30*time.Second, func() (err error) {
		if got, err = c.Status(t.Context(), id, "acme"); err == nil && (got.State != want || got.Version != version) {
			err = fmt.Errorf("%s is %s at version %d, want %s at %d", id, got.State, got.Version, want, version)
		}
		return err
	})
	return got
}

// What could not be prepared is prepared afresh by a retry: it is sent once the
// configuration is there, and fails with its marker again when the content is at
// fault.
func TestRetryPreparesAfresh(t *testing.T) {
	t.Parallel()
	s := housetest.New(t, housetest.Options{})
	c := operatorOf(t, s)
	unset := s.Start(housetest.Sender, map[string]string{"MAIL_SERVER_FROM_ADDRESS": ""})
	s.Publish(housetest.Mail("acme", "config", "you@example.org"), housetest.Mail("acme", "content", "no address at all"))
	config, content := status(t, c, "config", delivery.Failed, 1), status(t, c, "content", delivery.Failed, 1)
	if !strings.Contains(string(config.Answer), "CONFIG_NOT_RESOLVABLE") {
		t.Fatalf("%s", config.Answer)
	}
	retry := func() {
		report, err := c.Retry(t.Context(), delivery.RetryCommand{IDs: []delivery.ID{config.ID, content.ID}, Warrant: operator})
		if err != nil || report.Done != 2 {
			t.Fatalf("%+v %v", report, err)
		}
	}
	retry() // nothing is mended yet
	status(t, c, "config", delivery.Failed, 3)
	status(t, c, "content", delivery.Failed, 3)
	unset.Stop()
	s.Start(housetest.Sender, nil)
	localtest.Eventually(t, 30*time.Second, func() error { _, err := c.Jobs(t.Context(), 1); return err })
	retry()
	status(t, c, "config", delivery.Sent, 5)
	if got := status(t, c, "content", delivery.Failed, 5); got.Attempts != 0 || !strings.Contains(string(got.Answer), "CONTENT_INVALID") {
		t.Errorf("%+v", got)
	}
	s.Settled(2, 30*time.Second)
	s.Audit().Check(t)
	if n := s.Sink.Count(); n != 1 {
		t.Errorf("%d mails arrived", n)
	}
}

// A job is in the middle when its sender is killed; another goes on from there
// and no delivery is retried twice or left out.
func TestAJobOutlivesItsSender(t *testing.T) {
	t.Parallel()
	const n = 60
	s := housetest.New(t, housetest.Options{})
	c := operatorOf(t, s)
	s.Start(housetest.DeadLetter, nil)
	s.Start(housetest.Watchdog, nil)
	victim := s.Exec(housetest.Sender, nil)
	for i := range n {
		s.Publish(housetest.Mail("acme", fmt.Sprintf("r-%02d", i), fmt.Sprintf("refuse+%d@example.org", i)))
	}
	command := delivery.JobCommand{Kind: delivery.JobRetry, Filter: delivery.JobFilter{Tenant: "acme", Code: "550"}, Rate: 20, Warrant: operator}
	localtest.Eventually(t, time.Minute, func() error { // archived, too
		count, err := c.CountJob(t.Context(), command)
		if err == nil && count.Count != n {
			err = fmt.Errorf("%d of %d found", count.Count, n)
		}
		return err
	})
	started := time.Now()
	job, err := c.StartJob(t.Context(), command)
	if err != nil || job.Total.Count != n {
		t.Fatalf("%+v %v", job, err)
	}
	progress := func(want func(*delivery.Job) bool) {
		t.Helper()
		localtest.Eventually(t, 90*time.Second, func() error {
			got, err := c.Job(t.Context(), delivery.JobLookup{ID: job.ID, Results: 1000})
			if err == nil && !want(got) {
				err = fmt.Errorf("%+v", got)
			}
			job = got
			return err
		})
	}
	id := job.ID
	localtest.Eventually(t, 30*time.Second, func() error {
		got, err := c.Job(t.Context(), delivery.JobLookup{ID: id})
		if err == nil && got.Done < 10 {
			err = fmt.Errorf("%d done", got.Done)
		}
		return err
	})
	victim.Kill()
	s.Start(housetest.Sender, nil)
	localtest.Eventually(t, 30*time.Second, func() error {
		got, err := c.Job(t.Context(), delivery.JobLookup{ID: id})
		if err == nil {
			job = got
		}
		return err
	})
	if job.Done == n {
		t.Fatal("the job was over before its sender was killed: nothing is proven")
	}
	progress(func(j *delivery.Job) bool { return j.State == delivery.JobDone })
	if job.Done != n || job.Skipped != 0 || job.Failed != 0 || len(job.Results) != n {
		t.Errorf("%+v", job)
	}
	if took := time.Since(started); took < 2*time.Second {
		t.Errorf("%d deliveries at %d per second took %s", n, job.Rate, took)
	}
	s.Settled(n, time.Minute)
	audit := s.Audit()
	audit.Check(t)
	for _, a := range audit.Accounts {
		// failed, by hand, failed again; what was in work when the sender was killed has one more
		if a.State != delivery.Failed || a.Version != 4 && a.Unknown() == 0 {
			t.Errorf("%+v", a)
		}
	}
	if m, err := s.Count(`SELECT count(*) FROM event WHERE state = 'retry' AND body::text IS NOT NULL AND convert_from(body, 'UTF8')::json ->> 'cause' = 'operator'`); err != nil || m != n {
		t.Errorf("%d retries by hand, want %d (%v)", m, n, err)
	}
}

// A refusal says what to do.
func TestCommandsThatAreRefusedSayWhatToDo(t *testing.T) {
	t.Parallel()
	s := housetest.New(t, housetest.Options{})
	s.Start(housetest.Sender, nil)
	s.Start(housetest.DeadLetter, nil)
	c := operatorOf(t, s)
	localtest.Eventually(t, 30*time.Second, func() error {
		_, err := c.Jobs(t.Context(), 1)
		if err == nil {
			_, err = c.DeadLetters(t.Context(), delivery.LetterFilter{})
		}
		return err
	})
	ids := []delivery.ID{delivery.NewID()}
	many := make([]delivery.ID, delivery.MaxCommandIDs+1)
	refused := func(_ any, err error) error { return err }
	for name, one := range map[string]struct {
		err        error
		code, says string
	}{
		"no ids":      {refused(c.Retry(t.Context(), delivery.RetryCommand{Warrant: operator})), "400", "ids is empty"},
		"too many":    {refused(c.Cancel(t.Context(), delivery.CancelCommand{IDs: many, Warrant: operator})), "400", "start a job"},
		"nobody":      {refused(c.Retry(t.Context(), delivery.RetryCommand{IDs: ids, Warrant: delivery.Warrant{Why: "x"}})), "400", "by is empty"},
		"no reason":   {refused(c.Cancel(t.Context(), delivery.CancelCommand{IDs: ids, Warrant: delivery.Warrant{By: "x"}})), "400", "why is empty"},
		"two lines":   {refused(c.Cancel(t.Context(), delivery.CancelCommand{IDs: ids, Warrant: delivery.Warrant{By: "x", Why: "a\nb"}})), "400", "line break"},
		"as what":     {refused(c.Settle(t.Context(), delivery.SettleCommand{IDs: ids, As: "dead", Warrant: operator})), "400", "want sent or failed"},
		"state":       {refused(c.StartJob(t.Context(), delivery.JobCommand{Kind: delivery.JobRetry, Filter: delivery.JobFilter{States: []delivery.State{delivery.Sent}}, Warrant: operator})), "400", "a retry takes"},
		"rate":        {refused(c.StartJob(t.Context(), delivery.JobCommand{Kind: delivery.JobRetry, Rate: -1, Warrant: operator})), "400", "rate is -1"},
		"kind":        {refused(c.CountJob(t.Context(), delivery.JobCommand{Kind: "burn"})), "400", "want retry or cancel"},
		"no such job": {refused(c.PauseJob(t.Context(), delivery.JobControl{ID: ids[0], Warrant: operator})), "404", "list them"},
		"nor there":   {refused(c.Job(t.Context(), delivery.JobLookup{ID: ids[0]})), "404", "no such job"},
		"triage":      {refused(c.Triage(t.Context(), delivery.TriageCommand{EventIDs: []string{"e"}, As: "open", Warrant: operator})), "400", "want resolved or discarded"},
	} {
		var refusal *bus.Error
		if !errors.As(one.err, &refusal) || refusal.Code != one.code || !strings.Contains(refusal.Text, one.says) {
			t.Errorf("%s: %v, want %s %q", name, one.err, one.code, one.says)
		}
	}
	if entries, err := c.Audit(t.Context(), delivery.AuditFilter{}); err != nil || len(entries) != 0 {
		t.Errorf("refused requests left an audit: %+v %v", entries, err)
	}
}
