package docket

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/pinned"
)

// Status tells where a document is, what was tried, and what holds it.
func (d *Docket) Status(ctx context.Context, id delivery.ID) (*document.Status, error) {
	s := &document.Status{}
	var q struct {
		state          *string
		due            *time.Time
		lane, breaker  *string
		shut           *time.Time
		why            *string
		issues, answer []byte
		mls            *[16]byte
		raw            [16]byte
	}
	found := false
	p := pinned.New()
	p.Query(selectDocument, func(rows pgx.Rows) error {
		found = true
		return rows.Scan(&q.raw, &s.Tenant, &s.Kind, &s.SBDHInstanceID, &s.AS4MessageID, &s.SenderID, &s.ReceiverID, &s.State, &s.Version, &s.Attempts, &s.Verdict, &q.issues,
			&s.C4Country, &s.MLS.Status, &s.MLS.Code, &q.mls, &s.Duplicate, &s.ReceivedAt, &s.AS4At, &s.ChangedAt, &s.Size, &q.answer,
			&q.state, &q.due, &q.lane, &q.breaker, &q.shut, &q.why)
	}, [16]byte(id))
	p.Query(selectAttempts, func(rows pgx.Rows) error {
		var a delivery.Attempt
		var answer []byte
		err := rows.Scan(&a.Number, &a.Fence, &a.ClaimedAt, &a.SettledAt, &a.Verdict, &answer)
		a.Answer = answer
		s.Tried = append(s.Tried, a)
		return err
	}, [16]byte(id))
	p.Query(selectEvents, func(rows pgx.Rows) error {
		var step delivery.Step
		err := rows.Scan(&step.Version, &step.State, &step.At)
		s.Journey = append(s.Journey, step)
		return err
	}, [16]byte(id))
	if err := p.Run(ctx, d.db); err != nil {
		return nil, fmt.Errorf("status of document %s: %w", id, err)
	}
	if !found {
		return nil, ErrNotFound
	}
	s.ID, s.Issues, s.Answer = q.raw, q.issues, q.answer
	if q.mls != nil {
		s.MLS.Delivery = *q.mls
	}
	switch {
	case q.state == nil:
		s.Gate = delivery.Gate{Name: "final", Why: "it is " + string(s.State), Release: "a replay by hand"}
	case *q.state == "leased":
		s.Gate = delivery.Gate{Name: "in_work", Why: "a worker has it", Release: "the attempt's result"}
	case q.breaker != nil && *q.breaker != lane.Closed:
		s.Gate = delivery.Gate{Name: "breaker", Until: q.shut, Why: "lane " + *q.lane + " is " + *q.breaker + ": " + *q.why, Release: "a probe that succeeds"}
	case *q.state == "waiting" && s.State == document.Deferred:
		s.Gate = delivery.Gate{Name: "deferred", Until: q.due, Why: "a verifier is away", Release: "the verifier comes back; a verifier-retry must be running"}
	case *q.state == "waiting":
		s.Gate = delivery.Gate{Name: "waiting", Until: q.due, Why: "it waits for its next attempt", Release: "the time"}
	default:
		s.Gate = delivery.Gate{Name: "ready", Until: q.due, Why: "it waits for a free slot", Release: "a forwarder that runs"}
	}
	return s, nil
}
