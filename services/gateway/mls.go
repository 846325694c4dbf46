package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// word is what the backend says about a document; the names are the seed's.
type word struct {
	SBDHInstanceID string      `json:"sbdhInstanceID" maxLength:"255" doc:"SBDH instance id, or the document's own id"`
	Code           string      `json:"responseCode" enum:"AP,AB,RE"`
	Text           string      `json:"responseText,omitempty" maxLength:"500"`
	Issues         []wordIssue `json:"issues,omitempty" maxItems:"100" doc:"with RE at least one that is not BW, else none but BW"`
}

type wordIssue struct {
	Reason string `json:"statusReasonCode" enum:"BV,BW,FD,SV"`
	Field  string `json:"errorField" maxLength:"500" doc:"XPath or name; NA if there is none"`
	Text   string `json:"description" maxLength:"500"`
}

func (w word) report() document.Report {
	r := document.Report{Code: document.Code(w.Code), Text: w.Text}
	for _, i := range w.Issues {
		r.Issues = append(r.Issues, document.MLSIssue{Reason: document.Severity(i.Reason), Field: i.Field, Text: i.Text})
	}
	return r
}

// said is what came of it.
type said struct {
	TransactionID delivery.ID    `json:"transactionID" doc:"the document's own id"`
	Status        document.Reply `json:"status" enum:"sent,recorded"`
	Message       string         `json:"message"`
	Delivery      delivery.ID    `json:"delivery,omitzero" doc:"that carries the answer"`
}

type saidAnswer struct{ Body said }

type saying struct {
	Tenant  string `query:"tenant" maxLength:"64" doc:"only a document of this tenant"`
	RawBody []byte
}

type countryReport struct {
	SBDH    string `query:"sbdhInstanceID" maxLength:"255" doc:"SBDH instance id, or the document's own id"`
	Country string `query:"c4CountryCode" doc:"two capital letters of ISO 3166-1"`
	Tenant  string `query:"tenant" maxLength:"64" doc:"only a document of this tenant"`
}

type slaAnswer struct{ Body document.SLA }

type period struct {
	Tenant  string    `query:"tenant" maxLength:"64" doc:"only documents of this tenant"`
	From    time.Time `query:"from" doc:"AS4 time stamps from then (RFC 3339); left out: the last 31 days"`
	To      time.Time `query:"to" doc:"and before then; left out: until now"`
	Entries bool      `query:"entries" doc:"every exchange too, not the figures only"`
}

// answers adds what concerns the receiver backend's word, and the answers to C2.
func (d *desk) answers(r *routes) {
	tellers := []Role{Backend, Operator}
	add(r, operation{id: "mls-send", method: http.MethodPost, path: "/api/mls/send", roles: tellers, largest: maxCommand, summary: "Answer C2 as the backend says",
		about: "The first word counts. Asked in this order: is sending on, is the word valid, is there the document, may it be answered, was it answered.",
		answers: map[int]string{http.StatusServiceUnavailable: "sending of MLS is turned off", http.StatusBadRequest: "the word is not valid", http.StatusNotFound: "no such document",
			http.StatusUnprocessableEntity: "an MLS or MLR is not answered", http.StatusConflict: "the document was answered, or verification has rejected it"},
		body: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: r.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[word](), true, "MLS")}}},
	}, d.say)
	add(r, operation{id: "inbound-report", method: http.MethodPost, path: "/api/inbound/report", roles: tellers, summary: "Tell the country of the receiver (C4)",
		answers: map[int]string{http.StatusBadRequest: "it is no country, or another one is known", http.StatusNotFound: "no such document"}}, d.country)
	add(r, operation{id: "mls-sla-1", method: http.MethodGet, path: "/api/mls/sla/mls1", roles: seers(), summary: "How many documents were answered within 20 minutes",
		answers: map[int]string{http.StatusUnprocessableEntity: "the period holds too many documents"}}, d.mls1)
}

// say keeps the seed's order of checks: 503, 400, 404, 422, 409.
func (d *desk) say(ctx context.Context, in *saying) (*saidAnswer, error) {
	if !d.policy.MLS {
		return nil, document.ErrMLSDisabled
	}
	var w word
	if err := strict(in.RawBody, &w); err != nil {
		return nil, problem(http.StatusBadRequest, err.Error())
	}
	report := w.report()
	if err := d.policy.CheckReport(report); err != nil {
		return nil, err
	}
	if w.SBDHInstanceID == "" || len(w.SBDHInstanceID) > document.MaxID {
		return nil, problem(http.StatusBadRequest, "sbdhInstanceID is empty or too long")
	}
	id, err := d.find(ctx, Named{SBDH: w.SBDHInstanceID, Tenant: in.Tenant})
	if err != nil {
		return nil, err
	}
	var reply document.Reply
	s, err := d.clerk.Change(ctx, id, func(f document.Facts, _ int, _ time.Time) (decision document.Decision, err error) {
		decision, reply, err = f.Report(report, d.policy)
		return decision, err
	}, nil)
	if err != nil {
		return nil, err
	}
	message := "the answer is on its way to C2"
	if reply == document.ReplyRecorded {
		message = "the answer is recorded; C2 wants to hear of failures only"
	}
	return &saidAnswer{Body: said{TransactionID: id, Status: reply, Message: message, Delivery: s.MLS.Delivery}}, nil
}

// country takes the same word twice, since an answer may be lost on its way.
func (d *desk) country(ctx context.Context, in *countryReport) (*statusAnswer, error) {
	if in.SBDH == "" {
		return nil, problem(http.StatusBadRequest, "sbdhInstanceID is missing")
	}
	id, err := d.find(ctx, Named{SBDH: in.SBDH, Tenant: in.Tenant})
	if err != nil {
		return nil, err
	}
	var fault error
	s, err := d.clerk.Change(ctx, id, func(f document.Facts, _ int, _ time.Time) (decision document.Decision, err error) {
		if in.Country != "" && f.C4Country == in.Country {
			return document.Decision{}, nil
		}
		decision, fault = f.ReportC4(in.Country, d.policy)
		return decision, fault
	}, nil)
	if fault != nil {
		return nil, problem(http.StatusBadRequest, fault.Error())
	}
	return &statusAnswer{Body: s}, err
}

func (d *desk) mls1(ctx context.Context, in *period) (*slaAnswer, error) {
	tenant, err := tenantOf(ctx, in.Tenant)
	if err != nil {
		return nil, err
	}
	from, to := in.From, in.To
	if to.IsZero() {
		to = time.Now()
	}
	if from.IsZero() {
		from = to.Add(-look)
	}
	if !from.Before(to) {
		return nil, problem(http.StatusBadRequest, "from must be before to")
	}
	facts, now, err := d.docs.AnswerFacts(ctx, tenant, from, to)
	if err != nil {
		return nil, err
	}
	sla := document.MLS1().Measure(facts, from, to, now)
	if !in.Entries {
		sla.Entries = nil
	}
	return &slaAnswer{Body: sla}, nil
}

// strict reads one JSON object without unknown fields. Its errors do not quote.
func strict(body []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("the body is not the JSON object that /openapi.json describes (about byte %d)", dec.InputOffset())
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON object")
	}
	return nil
}
