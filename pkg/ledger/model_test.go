package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// model is what the world outside knows of a ledger, and checks it against.
type model struct {
	*book
	t       *testing.T
	policy  retry.Policy
	bodies  map[[2]string][32]byte // first body of each (tenant, request id)
	ids     map[[2]string]delivery.ID
	all     map[delivery.ID]*life
	order   []delivery.ID
	workers map[uuid.UUID][]ledger.Claimed // what a living worker holds
	names   []uuid.UUID
	lost    []ledger.Claimed // results of workers that were thought dead
	serial  int
}

// life is what the model expects of one delivery.
type life struct {
	state    delivery.State
	version  int
	attempts int
	fence    int32 // highest seen in a claim
	events   []delivery.State
	key      string
}

func (m *model) fatal(r *rapid.T, format string, args ...any) {
	r.Helper()
	r.Fatalf(format, args...)
}

func (m *model) accept(r *rapid.T) {
	var batch []ledger.Acceptance
	for range rapid.IntRange(1, 6).Draw(r, "requests") {
		tenant, id := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "tenant"), fmt.Sprint(rapid.IntRange(0, m.serial+3).Draw(r, "id"))
		m.serial++
		a := m.request(tenant, id)
		a.OrderingKey = rapid.SampledFrom([]string{"", "", "k1", "k2"}).Draw(r, "key")
		if rapid.IntRange(0, 9).Draw(r, "body") == 0 {
			a.BodyHash[0]++
		}
		if rapid.IntRange(0, 5).Draw(r, "more") == 0 {
			a.Recipients = append(a.Recipients, "second@example.test", "third@example.test")
		}
		switch rapid.IntRange(0, 9).Draw(r, "when") {
		case 0:
			later := time.Now().Add(time.Hour)
			a.SendAt = &later
		case 1:
			past := time.Now().Add(-time.Second)
			a.ExpiresAt = &past
		case 2:
			a.Failure, a.Raw, a.Prepared = &delivery.Answer{Code: "CONTENT_INVALID"}, []byte("{}"), nil
		}
		batch = append(batch, a)
	}
	got, events, err := m.Accept(m.t.Context(), batch)
	if err != nil {
		m.fatal(r, "accept: %v", err)
	}
	fresh := 0
	for i, a := range batch {
		k := [2]string{a.Tenant, a.RequestID}
		first, known := m.bodies[k]
		want := ledger.Acceptation{ID: a.ID, Fresh: true}
		if known {
			want = ledger.Acceptation{ID: m.ids[k], Conflict: first != a.BodyHash}
		} else {
			fresh++
			m.bodies[k], m.ids[k] = a.BodyHash, a.ID
			state := delivery.Pending
			if a.Failure != nil {
				state = delivery.Failed
			}
			m.all[a.ID] = &life{state: state, version: 1, events: []delivery.State{state}, key: a.OrderingKey}
			m.order = append(m.order, a.ID)
		}
		if got[i] != want {
			m.fatal(r, "accept of %v: %+v, want %+v", k, got[i], want)
		}
	}
	if len(events.Messages) != fresh {
		m.fatal(r, "%d messages for %d fresh requests", len(events.Messages), fresh)
	}
}

func (m *model) worker(r *rapid.T) uuid.UUID { return rapid.SampledFrom(m.names).Draw(r, "worker") }

func (m *model) claim(r *rapid.T) {
	w, n := m.worker(r), rapid.IntRange(1, 5).Draw(r, "n")
	taken, _, err := m.work.Claim(m.t.Context(), w, []claim.Turn{{Group: m.group("a"), N: n}, {Group: m.group("b"), N: n}})
	if err != nil {
		m.fatal(r, "claim: %v", err)
	}
	perTenant := map[string]int{}
	for _, c := range taken {
		l := m.all[c.ID]
		perTenant[c.Tenant]++
		switch {
		case l.state != delivery.Pending && l.state != delivery.Retry:
			m.fatal(r, "claimed %s in state %s", c.ID, l.state)
		case c.Fence <= l.fence:
			m.fatal(r, "fence %d of %s after %d", c.Fence, c.ID, l.fence)
		case int(c.Version) != l.version || c.State != l.state || c.Attempts != l.attempts:
			m.fatal(r, "claimed %+v, want %+v", c, l)
		case m.holder(c.ID) != uuid.Nil:
			m.fatal(r, "%s is claimed twice", c.ID)
		}
		for _, id := range m.order { // nobody of its key before it may be unfinished
			if id == c.ID {
				break
			}
			if before := m.all[id]; l.key != "" && before.key == l.key && m.tenant(id) == c.Tenant && !before.state.Final() {
				m.fatal(r, "%s overtakes %s", c.ID, id)
			}
		}
		l.fence = c.Fence
		m.workers[w] = append(m.workers[w], c)
	}
	if perTenant["a"] > n || perTenant["b"] > n {
		m.fatal(r, "asked for %d, got %v", n, perTenant)
	}
}

func (m *model) tenant(id delivery.ID) string {
	for k, have := range m.ids {
		if have == id {
			return k[0]
		}
	}
	return ""
}

func (m *model) holder(id delivery.ID) uuid.UUID {
	for w, held := range m.workers {
		for _, c := range held {
			if c.ID == id {
				return w
			}
		}
	}
	return uuid.Nil
}

// pop takes one piece of work from a worker.
func (m *model) pop(r *rapid.T) (ledger.Claimed, bool) {
	w := m.worker(r)
	held := m.workers[w]
	if len(held) == 0 {
		return ledger.Claimed{}, false
	}
	i := rapid.IntRange(0, len(held)-1).Draw(r, "which")
	c := held[i]
	m.workers[w] = append(held[:i:i], held[i+1:]...)
	return c, true
}

// outcome draws what an attempt reports and what follows from it.
func (m *model) outcome(r *rapid.T, c ledger.Claimed) ledger.Settlement {
	verdicts := []delivery.Verdict{delivery.Accepted, delivery.Refused, delivery.Unknown}
	answers := []delivery.Answer{{Category: delivery.Transient, Code: "451"}, {Category: delivery.Permanent, Code: "550"}, {Category: delivery.Quota}}
	o := delivery.Outcome{Verdict: rapid.SampledFrom(verdicts).Draw(r, "verdict"), Answer: rapid.SampledFrom(answers).Draw(r, "answer")}
	past := retry.Past{Retries: c.Retries, Accepted: c.Accepted}
	for _, x := range c.Recipients {
		past.Waiting = append(past.Waiting, x.Ordinal)
		if rapid.Bool().Draw(r, "own answer") {
			o.Recipients = append(o.Recipients, delivery.RecipientOutcome{Ordinal: x.Ordinal, Verdict: rapid.SampledFrom(verdicts).Draw(r, "its verdict"), Answer: rapid.SampledFrom(answers).Draw(r, "its answer")})
		}
	}
	policy := m.policy
	policy.OnUnknown = rapid.SampledFrom([]retry.OnUnknown{retry.UnknownRetry, retry.UnknownHold}).Draw(r, "policy")
	s := ledger.Settlement{Claimed: c, Verdict: o.Verdict, Attempt: true, Cause: "attempt", Decision: policy.Decide(o, past, 0.5)}
	s.Decision.Delay = 0
	return s
}

func (m *model) moved(id delivery.ID, to delivery.State, attempt bool) {
	l := m.all[id]
	l.state, l.version, l.events = to, l.version+1, append(l.events, to)
	if attempt {
		l.attempts++
	}
}

func (m *model) settleSome(r *rapid.T) {
	var batch []ledger.Settlement
	for range rapid.IntRange(1, 4).Draw(r, "results") {
		if c, ok := m.pop(r); ok {
			batch = append(batch, m.outcome(r, c))
		}
	}
	if len(batch) == 0 {
		return
	}
	results, events, err := m.Settle(m.t.Context(), batch)
	if err != nil || len(events.Messages) != len(batch) {
		m.fatal(r, "settle: %d of %d, %v", len(events.Messages), len(batch), err)
	}
	for i, s := range batch {
		if results[i] != ledger.Moved || !delivery.Legal(m.all[s.Claimed.ID].state, s.Decision.State) {
			m.fatal(r, "settle: %s, %s to %s", results[i], m.all[s.Claimed.ID].state, s.Decision.State)
		}
		m.moved(s.Claimed.ID, s.Decision.State, true)
	}
	if rapid.Bool().Draw(r, "repeat") { // as after a lost answer
		results, events, err := m.Settle(m.t.Context(), batch)
		if err != nil || len(events.Messages) != 0 {
			m.fatal(r, "again: %v %v", events, err)
		}
		for _, x := range results {
			if x != ledger.Already {
				m.fatal(r, "again: %s", x)
			}
		}
	}
}

func (m *model) giveBack(r *rapid.T) {
	if c, ok := m.pop(r); ok {
		if err := m.GiveBack(m.t.Context(), []ledger.Settlement{{Claimed: c, Decision: retry.Decision{GiveBack: true}}}); err != nil {
			m.fatal(r, "give back: %v", err)
		}
	}
}

// crash makes a worker forget what it did; its results may still come, late.
func (m *model) crash(r *rapid.T) {
	w := m.worker(r)
	m.lost = append(m.lost, m.workers[w]...)
	m.workers[w] = nil
	m.exec(m.t, "UPDATE worker SET lease_until = clock_timestamp() - interval '5 seconds' WHERE id = $1", [16]byte(w))
	for i := range m.names {
		if m.names[i] == w {
			delete(m.workers, w)
			m.names[i] = m.join(m.t, time.Hour)
		}
	}
}

func (m *model) sweep(r *rapid.T) {
	found, err := m.Stuck(m.t.Context(), time.Hour, delivery.ID{}, 1000)
	if err != nil {
		m.fatal(r, "stuck: %v", err)
	}
	var batch []ledger.Settlement
	for _, c := range found {
		if m.holder(c.ID) != uuid.Nil {
			m.fatal(r, "%s is stuck and has a living worker", c.ID)
		}
		past := retry.Past{Retries: c.Retries, Accepted: c.Accepted}
		for _, x := range c.Recipients {
			past.Waiting = append(past.Waiting, x.Ordinal)
		}
		s := ledger.Settlement{Claimed: c, Verdict: delivery.Unknown, Attempt: true, Cause: "lease lapsed", Decision: m.policy.Decide(delivery.Outcome{}, past, 0.5)}
		s.Decision.Delay = 0
		batch = append(batch, s)
	}
	results, _, err := m.Settle(m.t.Context(), batch)
	if err != nil {
		m.fatal(r, "sweep: %v", err)
	}
	for i, s := range batch {
		if results[i] != ledger.Moved {
			m.fatal(r, "sweep of %s: %s", s.Claimed.ID, results[i])
		}
		m.moved(s.Claimed.ID, s.Decision.State, true)
	}
}

func (m *model) late(r *rapid.T) {
	if len(m.lost) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.lost)-1).Draw(r, "which")
	c := m.lost[i]
	m.lost = append(m.lost[:i:i], m.lost[i+1:]...)
	s := m.outcome(r, c)
	results, events, err := m.Settle(m.t.Context(), []ledger.Settlement{s})
	if err != nil {
		m.fatal(r, "late settle: %v", err)
	}
	l := m.all[c.ID]
	switch results[0] {
	case ledger.Moved: // before the sweep
		if int(c.Version) != l.version || c.Fence != l.fence {
			m.fatal(r, "a stale result moved %s", c.ID)
		}
		m.moved(c.ID, s.Decision.State, true)
	case ledger.Stale:
		// Nobody has it any more, and the book knows no later claim of it.
		want := s.Decision.State == delivery.Sent && c.Fence == l.fence && m.holder(c.ID) == uuid.Nil && delivery.Legal(l.state, delivery.Sent)
		accepted, events, err := m.Late(m.t.Context(), s)
		if err != nil || accepted != want || (len(events.Messages) == 1) != accepted {
			m.fatal(r, "late result of %s (fence %d, %+v): %v %v", c.ID, c.Fence, l, accepted, err)
		}
		if accepted {
			m.moved(c.ID, delivery.Sent, false)
		}
	case ledger.Already: // the sweep wrote the same: unknown
		if s.Verdict != delivery.Unknown || len(events.Messages) != 0 {
			m.fatal(r, "already: %+v", s)
		}
	}
}

func (m *model) look(r *rapid.T) {
	if _, err := m.work.Look(m.t.Context(), claim.Group{}, 10); err != nil {
		m.fatal(r, "look: %v", err)
	}
}

func (m *model) end(r *rapid.T) {
	if len(m.order) == 0 {
		return
	}
	id := rapid.SampledFrom(m.order).Draw(r, "delivery")
	l := m.all[id]
	inWork := m.holder(id) != uuid.Nil || m.count(m.t, "SELECT count(*) FROM queue WHERE id = $1 AND owner IS NOT NULL", [16]byte(id)) == 1
	if _, ended, err := m.Cancel(m.t.Context(), id, "test"); err != nil || ended != (!inWork && !l.state.Final()) {
		m.fatal(r, "cancel of %+v (in work %v): %v %v", l, inWork, ended, err)
	} else if ended {
		m.moved(id, delivery.Cancelled, false)
	}
}

func (m *model) expire(r *rapid.T) {
	due, err := m.Overdue(m.t.Context(), 100)
	if err != nil {
		m.fatal(r, "overdue: %v", err)
	}
	for _, id := range due {
		if _, ended, err := m.Expire(m.t.Context(), id); err != nil || !ended || m.all[id].state.Final() {
			m.fatal(r, "expire: %v %v", ended, err)
		}
		m.moved(id, delivery.Expired, false)
	}
}

// TestTheLedgerAgainstAModel leads random lives; more of them with
// -rapid.checks=200 -rapid.steps=100.
func TestTheLedgerAgainstAModel(t *testing.T) {
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
			"accept": m.accept, "claim": m.claim, "claim more": m.claim, "settle": m.settleSome, "settle more": m.settleSome, "give back": m.giveBack,
			"crash": m.crash, "sweep": m.sweep, "late": m.late, "look": m.look, "look again": m.look, "cancel": m.end, "expire": m.expire,
			"": m.check,
		})
	})
}

// check holds the book against the invariants I1 to I5 of the design.
func (m *model) check(r *rapid.T) {
	for name, wrong := range map[string]string{
		"a final one is in the queue, or an unfinished one is not": `SELECT count(*) FROM delivery d LEFT JOIN queue q ON q.id = d.id
			WHERE (d.state IN ('sent', 'failed', 'dead', 'expired', 'cancelled')) = (q.id IS NOT NULL)`,
		"work without its delivery": `SELECT count(*) FROM queue q LEFT JOIN delivery d ON d.id = q.id WHERE d.id IS NULL`,
		"queue and delivery disagree": `SELECT count(*) FROM queue q JOIN delivery d ON d.id = q.id
			WHERE q.version <> d.version OR q.fence < d.fence OR (q.state = 'held') <> (d.state = 'held') OR q.tenant <> d.tenant OR q.lane <> d.lane`,
		"two of one ordering key are not blocked": `SELECT count(*) FROM (SELECT FROM queue WHERE ordering_key IS NOT NULL AND state <> 'blocked' GROUP BY tenant, ordering_key HAVING count(*) > 1) x`,
		"all of one ordering key are blocked":     `SELECT count(*) FROM (SELECT FROM queue WHERE ordering_key IS NOT NULL GROUP BY tenant, ordering_key HAVING bool_and(state = 'blocked')) x`,
		"versions have a gap":                     `SELECT count(*) FROM delivery d WHERE ARRAY(SELECT version FROM event e WHERE e.aggregate = d.id ORDER BY 1) <> ARRAY(SELECT generate_series(1, d.version))`,
		"the last event is not the state":         `SELECT count(*) FROM delivery d JOIN event e ON e.aggregate = d.id AND e.version = d.version WHERE e.state <> d.state`,
		"an event is not named once by the outbox": `SELECT count(*) FROM event e FULL JOIN (SELECT a, v, count(*) AS n FROM outbox, unnest(aggregates, versions) AS x (a, v) GROUP BY a, v) o
			ON o.a = e.aggregate AND o.v = e.version WHERE e.aggregate IS NULL OR o.n IS DISTINCT FROM 1`,
		"attempts are miscounted":   `SELECT count(*) FROM delivery d WHERE d.attempts <> (SELECT count(*) FROM attempt a WHERE a.delivery_id = d.id AND a.verdict <> 'late')`,
		"two attempts of one fence": `SELECT count(*) FROM (SELECT FROM attempt WHERE verdict <> 'late' GROUP BY delivery_id, fence HAVING count(*) > 1) x`,
		"attempts are not numbered by their fences": `SELECT count(*) FROM attempt a JOIN attempt b ON a.delivery_id = b.delivery_id AND a.fence < b.fence AND a.number >= b.number
			WHERE a.verdict <> 'late' AND b.verdict <> 'late'`,
		"sent without an accepted recipient, or with one that waits": `SELECT count(*) FROM delivery d WHERE d.state = 'sent' AND
			(SELECT count(*) FROM recipient r WHERE r.delivery_id = d.id) > 1 AND
			((SELECT count(*) FROM recipient r WHERE r.delivery_id = d.id AND r.state = 'accepted') = 0 OR EXISTS (SELECT FROM recipient r WHERE r.delivery_id = d.id AND r.state = 'pending'))`,
		"sent with its sole recipient refused": `SELECT count(*) FROM delivery d WHERE d.state = 'sent' AND d.prepared AND NOT EXISTS (SELECT FROM recipient r WHERE r.delivery_id = d.id AND r.state <> 'refused')`,
		"given up, and a recipient waits":      `SELECT count(*) FROM delivery d WHERE d.state IN ('dead', 'failed') AND d.prepared AND EXISTS (SELECT FROM recipient r WHERE r.delivery_id = d.id AND r.state = 'pending')`,
	} {
		if n := m.count(m.t, wrong); n != 0 {
			m.fatal(r, "%s: %d times", name, n)
		}
	}
	rows, err := m.db.Query(m.t.Context(), `SELECT d.id, d.state, d.version, d.attempts, ARRAY(SELECT e.state FROM event e WHERE e.aggregate = d.id ORDER BY e.version) FROM delivery d`)
	if err != nil {
		m.fatal(r, "%v", err)
	}
	defer rows.Close()
	seen := 0
	for rows.Next() {
		var id [16]byte
		var got life
		if err := rows.Scan(&id, &got.state, &got.version, &got.attempts, &got.events); err != nil {
			m.fatal(r, "%v", err)
		}
		seen++
		want := m.all[id]
		if want == nil || got.state != want.state || got.version != want.version || got.attempts != want.attempts || fmt.Sprint(got.events) != fmt.Sprint(want.events) {
			m.fatal(r, "%s is %+v, want %+v", delivery.ID(id), got, want)
		}
	}
	if rows.Err() != nil || seen != len(m.all) {
		m.fatal(r, "%d deliveries of %d accepted, %v", seen, len(m.all), rows.Err())
	}
}
