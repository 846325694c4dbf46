package sender

import (
	"math/rand/v2"
	"time"

	"github.com/posthouse-io/posthouse/pkg/claim"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/retry"
)

// latePreparer prepares what was accepted without being prepared and is retried:
// the claim finds it on the lane "prepare".
type latePreparer struct {
	book     *ledger.Ledger
	preparer preparer
	tell     func([]claim.Group)
}

// prepare gives a claimed delivery to its real lane, or ends it with its marker
// code again. It makes no attempt, so none is counted.
func (l latePreparer) prepare(s *sender, c ledger.Claimed) {
	p := l.again(s, c)
	if p.failure != nil {
		s.store(ledger.Settlement{Claimed: c, Cause: "cannot be prepared", Decision: retry.Decision{State: delivery.Failed, Answer: *p.failure}})
		return
	}
	content := ledger.Content{Prepared: p.content, Recipients: p.recipients, Lane: l.preparer.lane}
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		done, err := l.book.Prepare(s.storing, c, content)
		if err == nil {
			switch {
			case done.Denied != nil && done.Denied.Hold:
				s.store(ledger.Settlement{Claimed: c, Cause: "its quota is used up",
					Decision: retry.Decision{GiveBack: true, Delay: max(time.Until(done.Denied.Turn), time.Second), Answer: *done.Denied.Answer()}})
			case done.Denied != nil:
				s.store(ledger.Settlement{Claimed: c, Cause: "cannot be prepared", Decision: retry.Decision{State: delivery.Failed, Answer: *done.Denied.Answer()}})
			case done.Stored:
				s.log.Info().Stringer("delivery", c.ID).Str("tenant", c.Tenant).Msg("prepared; it goes to its lane")
				l.tell([]claim.Group{c.GroupIn(content.Lane)})
			}
			return
		}
		if s.storing.Err() != nil {
			s.log.Error().Err(err).Stringer("delivery", c.ID).Msg("the prepared content could not be stored; the sweep returns it")
			return
		}
		s.log.Warn().Err(err).Stringer("delivery", c.ID).Msg("the prepared content cannot be stored; trying again")
		t := time.NewTimer(wait/2 + rand.N(wait))
		select {
		case <-s.storing.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

// again is the step that intake takes, on the request as it came. A panic in
// foreign content is that content's fault.
func (l latePreparer) again(s *sender, c ledger.Claimed) (p prepared) {
	defer func() {
		if r := recover(); r != nil {
			s.log.Error().Stringer("delivery", c.ID).Type("panic", r).Msg("a request made the preparation panic")
			p = prepared{failure: marker(contentInvalid, delivery.InvalidInput, "the request makes the preparation panic")}
		}
	}()
	r, err := delivery.DecodeRequest(c.Request, c.RequestID)
	if err != nil {
		return prepared{failure: marker(contentInvalid, delivery.InvalidInput, err.Error())}
	}
	return l.preparer.mail(&r.MailRequest)
}
