package gateway

import (
	"context"
	"encoding/hex"
	"net/http"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// seers may read everything but content.
func seers() []Role { return []Role{Operator, Backend, Reader} }

// Named is how a request names one document; exported, so that it is filled in where
// it is embedded.
type Named struct {
	SBDH   string `path:"sbdh" maxLength:"255" doc:"SBDH instance id (the newest document that has it), or the document's own id"`
	Tenant string `query:"tenant" maxLength:"64" doc:"only a document of this tenant"`
}

func (d *desk) find(ctx context.Context, n Named) (delivery.ID, error) {
	tenant, err := tenantOf(ctx, n.Tenant)
	if err != nil {
		return delivery.ID{}, err
	}
	return d.docs.Resolve(ctx, tenant, n.SBDH)
}

// page is how a request names a part of a list.
type page struct {
	Tenant string    `query:"tenant" maxLength:"64" doc:"only documents of this tenant"`
	From   time.Time `query:"from" doc:"only documents stored since then (RFC 3339); left out: the last 31 days"`
	Limit  int       `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Offset int       `query:"offset" minimum:"0" maximum:"100000" default:"0"`
}

// look is how far back a list goes when it is not told.
const look = 31 * 24 * time.Hour

type listAnswer struct{ Body []docket.Line }
type statusAnswer struct{ Body *document.Status }

// timeline is what has happened to one document or delivery.
type timeline struct {
	ID      delivery.ID        `json:"id"`
	Journey []delivery.Step    `json:"journey"`
	Tried   []delivery.Attempt `json:"tried"`
}

type timelineAnswer struct{ Body timeline }

type payloadAnswer struct {
	ContentType string `header:"Content-Type"`
	Disposition string `header:"Content-Disposition"`
	SHA256      string `header:"X-Content-SHA256"`
	Body        []byte
}

// inbound adds what can be asked about documents.
func (d *desk) inbound(r *routes) {
	unknown := map[int]string{http.StatusNotFound: "no such document"}
	get := func(id, path, summary string, roles []Role) operation {
		return operation{id: id, method: http.MethodGet, path: path, summary: summary, roles: roles}
	}
	one := func(id, path, summary string, roles []Role) operation {
		o := get(id, path, summary, roles)
		o.answers = unknown
		return o
	}
	add(r, one("inbound-status", "/api/inbound/status/{sbdh}", "All that is known of a document, and what holds it", seers()),
		func(ctx context.Context, in *Named) (*statusAnswer, error) {
			s, err := d.status(ctx, *in)
			return &statusAnswer{Body: s}, err
		})
	add(r, one("inbound-timeline", "/api/ops/inbound/{sbdh}/timeline", "The moves of a document and the attempts to forward it", seers()),
		func(ctx context.Context, in *Named) (*timelineAnswer, error) {
			s, err := d.status(ctx, *in)
			if err != nil {
				return nil, err
			}
			return &timelineAnswer{Body: timeline{ID: s.ID, Journey: s.Journey, Tried: s.Tried}}, nil
		})
	add(r, one("inbound-payload", "/api/ops/inbound/{sbdh}/payload", "The document as it was received", []Role{Operator, Backend}), d.payload)
	for _, l := range []struct {
		id, path, summary string
		list              func(context.Context, docket.Page) ([]docket.Line, error)
		whole             bool
	}{
		{"inbound-in-processing", "/api/inbound/in-processing", "Documents in work or waiting for it, the newest first", d.docs.InProcessing, true},
		{"inbound-history", "/api/ops/inbound/history", "Documents whose way has ended, the newest first", d.docs.History, true},
		{"inbound-missing-c4", "/api/inbound/missing-c4-country-code", "Forwarded documents whose receiver's country nobody has told", d.docs.MissingC4, false},
		{"mls-missing", "/api/mls/missing", "Forwarded documents whose sender still waits for an answer that is ours to give", d.docs.MissingMLS, false},
	} {
		add(r, get(l.id, l.path, l.summary, seers()), func(ctx context.Context, in *page) (*listAnswer, error) {
			tenant, err := tenantOf(ctx, in.Tenant)
			if err != nil {
				return nil, err
			}
			from := in.From
			if from.IsZero() && !l.whole {
				from = time.Now().Add(-look)
			}
			lines, err := l.list(ctx, docket.Page{Tenant: tenant, From: from, Limit: in.Limit, Offset: in.Offset})
			return &listAnswer{Body: lines}, err
		})
	}
}

func (d *desk) status(ctx context.Context, n Named) (*document.Status, error) {
	id, err := d.find(ctx, n)
	if err != nil {
		return nil, err
	}
	return d.docs.Status(ctx, id)
}

func (d *desk) payload(ctx context.Context, in *Named) (*payloadAnswer, error) {
	id, err := d.find(ctx, *in)
	if err != nil {
		return nil, err
	}
	p, err := d.docs.Payload(ctx, id)
	if err != nil {
		return nil, err
	}
	return &payloadAnswer{ContentType: p.ContentType, Disposition: `attachment; filename="` + id.String() + `"`, SHA256: hex.EncodeToString(p.SHA256), Body: p.Body}, nil
}
