package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/quota"
)

// Find resolves a client's request id of a tenant, or a delivery id. The client's
// comes first, since many clients name their requests by UUIDs too.
func (l *Ledger) Find(ctx context.Context, tenant, name string) (delivery.ID, error) {
	var id [16]byte
	err := l.db.QueryRow(ctx, deliveryOfRequest, tenant, storable(name)).Scan(&id)
	if err == nil {
		return id, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return delivery.ID{}, fmt.Errorf("find request: %w", err)
	}
	parsed, err := delivery.ParseID(name)
	if err != nil {
		return delivery.ID{}, ErrNotFound
	}
	return parsed, nil
}

// Status tells where a delivery is. ErrNotFound when there is none.
func (l *Ledger) Status(ctx context.Context, id delivery.ID) (*delivery.Status, error) {
	s := &delivery.Status{ID: id, AcceptedAt: id.Time()}
	var q queued
	found := false
	p := newPipeline()
	p.Query(selectStatus, func(rows pgx.Rows) error {
		found = true
		var class delivery.Class
		var answer []byte
		err := rows.Scan(&s.Tenant, &s.Channel, &s.RequestID, &class, &s.State, &s.Version, &s.Attempts, &s.Retries, &s.ExpiresAt, &s.ChangedAt, &answer,
			&s.Lane, &q.state, &q.dueAt, &q.claimedAt, &q.owner, &q.leaseUntil, &q.shut, &q.lane.Breaker, &q.shutUntil, &q.openedAt, &q.lane.Failures, &q.lane.Cause, &q.lane.Forced,
			&q.fullUntil, &q.fullWhy, &q.lane.Cap, &q.capWhy, &q.paused, &q.pausedUntil, &q.pausedWhy, &q.restScope, &q.restUntil, &q.restWhy,
			&q.lapsed, &q.head)
		q.lane.Key = s.Lane
		if q.shutUntil != nil {
			q.lane.ShutUntil = *q.shutUntil
		}
		if q.openedAt != nil {
			q.lane.OpenedAt = *q.openedAt
		}
		s.Class, s.Answer = class.String(), answer
		return err
	}, [16]byte(id))
	p.Query(anyWorker, func(rows pgx.Rows) error { return rows.Scan(&q.sender) })
	p.Query(selectRecipients, func(rows pgx.Rows) error {
		var r delivery.RecipientStatus
		err := rows.Scan(&r.Ordinal, &r.State, &r.Code, &r.Text)
		s.Recipients = append(s.Recipients, r)
		return err
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
	if err := l.run(ctx, p); err != nil {
		return nil, fmt.Errorf("status of %s: %w", id, err)
	}
	if !found {
		return nil, ErrNotFound
	}
	s.InWork = q.owner != nil
	s.Gate = q.gate(s)
	return s, nil
}

// queued is what the queue and the lane say of a delivery that is not finished.
type queued struct {
	state                                                *string
	dueAt, claimedAt, leaseUntil, shutUntil, pausedUntil *time.Time
	openedAt, fullUntil, restUntil                       *time.Time
	lane                                                 lane.View
	restScope                                            *string // tenant or channel, when it is paused
	fullWhy, capWhy, restWhy                             string
	owner                                                *uuid.UUID
	shut, paused                                         bool // until then, or without an end
	pausedWhy                                            string
	lapsed                                               bool       // its worker has not renewed its lease
	sender                                               bool       // some worker holds a lease
	head                                                 *uuid.UUID // of its ordering key, while it is blocked
}

// gate names the first thing in the way, in the order in which they apply.
func (q queued) gate(s *delivery.Status) delivery.Gate {
	switch {
	case q.state == nil:
		return delivery.Gate{Name: "final", Why: "it is " + string(s.State) + because(s) + ": nothing will be tried by itself", Release: finalRelease(s.State)}
	case *q.state == "held":
		return delivery.Gate{Name: "held", Why: "nobody knows whether the last attempt arrived", Release: "an operator retries, cancels or settles it"}
	case *q.state == "leased" && q.lapsed:
		return delivery.Gate{Name: "lapsed", Until: q.leaseUntil, Why: "the worker that has it is gone or has lost its lease", Release: "the watchdog's next sweep; a watchdog must be running"}
	case *q.state == "leased":
		return delivery.Gate{Name: "in_work", Until: q.leaseUntil, Why: "a worker has it under a lease", Release: "the attempt's result; if the worker dies, the sweep after the lease has run out"}
	case *q.state == "blocked":
		why := "an older delivery of the same ordering key is not finished"
		if q.head != nil {
			why += ": " + q.head.String()
		}
		return delivery.Gate{Name: "blocked", Why: why, Release: "that delivery's end"}
	case q.paused:
		return delivery.Gate{Name: "paused", Until: q.pausedUntil, Why: "lane " + s.Lane + " is paused: " + q.pausedWhy, Release: "the lane is resumed"}
	case q.restScope != nil:
		return delivery.Gate{Name: "paused", Until: q.restUntil, Why: "the " + *q.restScope + " is paused: " + q.restWhy, Release: "the " + *q.restScope + " is resumed"}
	case q.shut:
		return delivery.Gate{Name: "breaker", Until: q.shutUntil, Why: lane.Message(q.lane, time.Now()), Release: "a probe that succeeds once the time is over; `posthouse breaker reset` at once"}
	case *q.state == "waiting" && s.Lane == PrepareLane && bytes.Contains(s.Answer, []byte(quota.Code)):
		return delivery.Gate{Name: "quota", Until: q.dueAt, Why: "the quota of its tenant is used up", Release: "the next month, or a higher quota (`posthouse quota set`)"}
	case q.fullUntil != nil && *q.state == "ready":
		return delivery.Gate{Name: "limit", Until: q.fullUntil, Why: "lane " + s.Lane + " rests: " + q.fullWhy, Release: "the time"}
	case *q.state == "waiting":
		why := "its time has not come (send_at)"
		if s.State == delivery.Retry {
			why = "it waits for its next attempt"
		}
		return delivery.Gate{Name: "waiting", Until: q.dueAt, Why: why, Release: "the time"}
	case !q.sender:
		return delivery.Gate{Name: "no_sender", Why: "no sender is running: no worker holds a lease", Release: "a sender that starts"}
	case q.lane.Breaker == lane.HalfOpen:
		return delivery.Gate{Name: "breaker", Why: "lane " + s.Lane + " is being probed after an outage", Release: "a probe that succeeds"}
	case q.lane.Cap > 0:
		return delivery.Gate{Name: "capped", Why: fmt.Sprintf("lane %s takes at most %d at once just now: %s", s.Lane, q.lane.Cap, q.capWhy), Release: "its turn; the cap grows with each success"}
	case s.Lane == PrepareLane:
		return delivery.Gate{Name: "prepare", Until: q.dueAt, Why: "it was never prepared, and a sender is to prepare it afresh", Release: "a sender with a free slot; then it goes to its real lane, or ends with its marker code"}
	}
	return delivery.Gate{Name: "ready", Until: q.dueAt, Why: "it waits for a free slot of a sender", Release: "a sender that runs and has a free slot in lane " + s.Lane}
}

// because says why it ended as it did, when that was no success.
func because(s *delivery.Status) string {
	var a delivery.Answer
	if s.State == delivery.Sent || json.Unmarshal(s.Answer, &a) != nil || a.Code == "" {
		return ""
	}
	return " (" + strings.TrimSpace(a.Code+" "+a.Text) + ")"
}

func finalRelease(s delivery.State) string {
	switch s {
	case delivery.Failed, delivery.Dead, delivery.Expired:
		return "a retry by hand, once the cause is mended"
	}
	return "nothing: it is done"
}
