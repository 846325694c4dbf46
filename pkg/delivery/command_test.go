package delivery_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

func TestCommandsAreBounded(t *testing.T) {
	t.Parallel()
	one, now := []delivery.ID{delivery.NewID()}, time.Now()
	w := delivery.Warrant{By: "ann", Why: "why"}
	retry := delivery.JobCommand{Kind: delivery.JobRetry, Warrant: w}
	job := func(change func(*delivery.JobCommand)) error {
		c := retry
		change(&c)
		return c.Check()
	}
	for name, c := range map[string]struct {
		err  error
		want string // empty: fine
	}{
		"a retry":         {delivery.RetryCommand{IDs: one, Warrant: w}.Check(), ""},
		"a thousand":      {delivery.RetryCommand{IDs: make([]delivery.ID, 1000), Warrant: w}.Check(), ""},
		"one too many":    {delivery.RetryCommand{IDs: make([]delivery.ID, 1001), Warrant: w}.Check(), "ids has 1001"},
		"none":            {delivery.CancelCommand{Warrant: w}.Check(), "ids is empty"},
		"a long why":      {delivery.CancelCommand{IDs: one, Warrant: delivery.Warrant{By: "a", Why: strings.Repeat("x", 501)}}.Check(), "why has 501"},
		"a long by":       {delivery.CancelCommand{IDs: one, Warrant: delivery.Warrant{By: strings.Repeat("x", 101), Why: "a"}}.Check(), "by has 101"},
		"bytes":           {delivery.CancelCommand{IDs: one, Warrant: delivery.Warrant{By: "a\xff", Why: "a"}}.Check(), "by is not UTF-8"},
		"a NUL":           {delivery.CancelCommand{IDs: one, Warrant: delivery.Warrant{By: "a", Why: "a\x00"}}.Check(), "why has a control"},
		"two expiries":    {delivery.RetryCommand{IDs: one, Warrant: w, Expiry: delivery.Expiry{ExpiresAt: &now, NoExpiry: true}}.Check(), "exclude"},
		"settled":         {delivery.SettleCommand{IDs: one, As: delivery.Failed, Warrant: w}.Check(), ""},
		"settled oddly":   {delivery.SettleCommand{IDs: one, As: delivery.Held, Warrant: w}.Check(), "want sent or failed"},
		"a job":           {job(func(*delivery.JobCommand) {}), ""},
		"a dry run":       {job(func(c *delivery.JobCommand) { c.Warrant, c.DryRun = delivery.Warrant{}, true }), ""},
		"a job by nobody": {job(func(c *delivery.JobCommand) { c.By = "" }), "by is empty"},
		"too fast":        {job(func(c *delivery.JobCommand) { c.Rate = 10_001 }), "rate is 10001"},
		"sent again":      {job(func(c *delivery.JobCommand) { c.Filter.States = []delivery.State{delivery.Sent} }), "states has"},
		"backwards":       {job(func(c *delivery.JobCommand) { c.Filter.AcceptedFrom, c.Filter.AcceptedTo = &now, &now }), "accepted_from"},
		"a long tenant":   {job(func(c *delivery.JobCommand) { c.Filter.Tenant = strings.Repeat("x", 129) }), "tenant has 129"},
		"cancel a failure": {job(func(c *delivery.JobCommand) {
			c.Kind, c.Filter.States = delivery.JobCancel, []delivery.State{delivery.Dead}
		}), "a cancel takes"},
		"cancel, expiring": {job(func(c *delivery.JobCommand) { c.Kind, c.NoExpiry = delivery.JobCancel, true }), "for a retry only"},
		"no job":           {delivery.JobControl{Warrant: w}.Check(), "id is empty"},
		"a job's control":  {delivery.JobControl{ID: one[0], Warrant: delivery.Warrant{By: "a"}}.Check(), ""},
		"triage":           {delivery.TriageCommand{EventIDs: []string{"e"}, As: "resolved", Warrant: w}.Check(), ""},
		"triage unsaid":    {delivery.TriageCommand{EventIDs: []string{"e"}, As: "resolved", Warrant: delivery.Warrant{By: "a"}}.Check(), "why is empty"},
		"a long letter":    {delivery.TriageCommand{EventIDs: []string{strings.Repeat("e", 101)}, As: "resolved", Warrant: w}.Check(), "events[0] has 101"},
	} {
		if (c.err == nil) != (c.want == "") || c.err != nil && !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, c.err, c.want)
		}
	}
	if err := retry.Check(); err != nil || retry.Rate != delivery.DefaultJobRate || len(retry.Filter.States) != 2 {
		t.Errorf("defaults: %+v %v", retry, err)
	}
}

func TestEachEffectSaysWhatToDo(t *testing.T) {
	t.Parallel()
	hints := map[string]delivery.Effect{}
	for _, e := range []delivery.Effect{delivery.EffectQueued, delivery.EffectCancelled, delivery.EffectSettled, delivery.EffectDue, delivery.EffectInWork, delivery.EffectSent,
		delivery.EffectFinal, delivery.EffectExpired, delivery.EffectNotHeld, delivery.EffectNoTarget, delivery.EffectNotFound, delivery.EffectError} {
		if before, twice := hints[e.Hint()]; twice || e.Hint() == "" {
			t.Errorf("%s and %s: %q", e, before, e.Hint())
		}
		hints[e.Hint()] = e
	}
}

// What a caller sends is refused or bounded, and never panics.
func FuzzCommands(f *testing.F) {
	f.Add([]byte(`{"ids":["01890000-0000-7000-8000-000000000001"],"by":"a","why":"b","no_expiry":true}`))
	f.Add([]byte(`{"kind":"retry","filter":{"states":["dead"],"accepted_from":"2026-01-01T00:00:00Z"},"rate":5,"by":"a","why":"b"}`))
	f.Add([]byte(`{"events":["e.1"],"as":"resolved","by":"a","why":"b"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var r delivery.RetryCommand
		if json.Unmarshal(body, &r) == nil && r.Check() == nil && (len(r.IDs) == 0 || len(r.IDs) > delivery.MaxCommandIDs || r.By == "" || strings.ContainsAny(r.Why, "\x00\n")) {
			t.Errorf("passed: %+v", r)
		}
		var j delivery.JobCommand
		if json.Unmarshal(body, &j) == nil && j.Check() == nil && (j.Rate < 1 || len(j.Filter.States) == 0) {
			t.Errorf("passed: %+v", j)
		}
		var l delivery.TriageCommand
		if json.Unmarshal(body, &l) == nil && l.Check() == nil && len(l.EventIDs) > delivery.MaxCommandIDs {
			t.Errorf("passed: %d letters", len(l.EventIDs))
		}
	})
}
