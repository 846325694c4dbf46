package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/ledger"
	"github.com/posthouse-io/posthouse/pkg/queue"
	"github.com/posthouse-io/posthouse/streams"
)

// maxMetadata bounds what is said beside a document, in bytes; the parts of a form
// have headers too.
const maxMetadata = 64 << 10

// incoming is a document on its way in.
type incoming struct {
	Tenant      string `path:"tenant" maxLength:"64" doc:"whose document it is"`
	ContentType string `header:"Content-Type"`
	Traceparent string `header:"traceparent" doc:"W3C trace context"`
	RawBody     []byte
}

// received says what became of it.
type received struct {
	ID      delivery.ID `json:"id" doc:"of the first one, when it is a repeat"`
	Repeats string      `json:"repeats,omitempty" doc:"as4 or sbdh: which id was seen before"`
}

type receivedAnswer struct {
	Status   int
	Location string `header:"Location"`
	Body     received
}

// intake adds the way in.
func (d *desk) intake(r *routes) {
	metadata := r.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[document.Inbound](), true, "Inbound")
	text, file := &huma.Schema{Type: "string", Description: "JSON: the same fields without body and body_ref"}, &huma.Schema{Type: "string", Format: "binary"}
	add(r, operation{id: "inbound-receive", method: http.MethodPost, path: "/api/inbound/document/{tenant}", roles: []Role{Publisher}, summary: "Bring a received document",
		about:  "Stored with its bytes before the answer. Repeating it is safe: the first one counts. Either JSON with the document in body (base64), or a form with a field metadata and a file document.",
		status: http.StatusAccepted, largest: d.largest/3*4 + 4 + maxMetadata,
		answers: map[int]string{http.StatusOK: "a repeat: the first one's id", http.StatusBadRequest: "not valid", http.StatusConflict: "another document was received under its id",
			http.StatusRequestEntityTooLarge: "too large", http.StatusUnsupportedMediaType: "neither JSON nor a form"},
		body: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
			"application/json":    {Schema: metadata},
			"multipart/form-data": {Schema: &huma.Schema{Type: "object", Required: []string{"metadata", "document"}, Properties: map[string]*huma.Schema{"metadata": text, "document": file}}},
		}},
	}, d.receive)
}

func (d *desk) receive(ctx context.Context, in *incoming) (*receivedAnswer, error) {
	tenant, err := tenantOf(ctx, in.Tenant)
	if err != nil {
		return nil, err
	}
	if !isTenant(tenant) {
		return nil, problem(http.StatusBadRequest, fmt.Sprintf("the tenant is not of [A-Za-z0-9_-], at most %d bytes", streams.MaxToken))
	}
	doc, body, err := d.read(in)
	if err != nil {
		return nil, err
	}
	taken, err := d.docs.Receive(ctx, docket.Reception{Tenant: tenant, In: doc, Body: body, Trace: in.Traceparent}, d.modes)
	if ledger.Refused(err) {
		return nil, problem(http.StatusBadRequest, "the database refuses its content")
	}
	if err != nil {
		return nil, err
	}
	answer := &receivedAnswer{Status: http.StatusAccepted, Location: "/api/inbound/status/" + taken.ID.String(), Body: received{ID: taken.ID, Repeats: taken.Repeats}}
	switch {
	case !taken.Fresh && taken.Differs:
		return nil, problem(http.StatusConflict, fmt.Sprintf("its %s id was received before with other content, as document %s", taken.Repeats, taken.ID))
	case !taken.Fresh:
		answer.Status = http.StatusOK
		return answer, nil
	}
	d.clerk.Hand(taken.Published)
	if taken.Group.Lane != 0 {
		d.clerk.Ready(docket.Moved{Kind: queue.Documents, Group: taken.Group})
	}
	d.log.Info().Stringer("document", taken.ID).Str("tenant", tenant).Int("bytes", len(body)).Str("by", holder(ctx).Name).Msg("document received")
	return answer, nil
}

// read decodes what came, in either form. Its errors name fields and never quote.
func (d *desk) read(in *incoming) (*document.Inbound, []byte, error) {
	kind, params, err := mime.ParseMediaType(in.ContentType)
	if err != nil {
		kind = ""
	}
	switch kind {
	case "application/json":
		return d.readJSON(in.RawBody)
	case "multipart/form-data":
		return d.readForm(in.RawBody, params["boundary"])
	}
	return nil, nil, problem(http.StatusUnsupportedMediaType, "send application/json or multipart/form-data")
}

// readJSON takes the metadata strictly and the document apart from it, since a
// message on the bus may be smaller than what comes here.
func (d *desk) readJSON(raw []byte) (*document.Inbound, []byte, error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		return nil, nil, problem(http.StatusBadRequest, "the body is no JSON object")
	}
	var body []byte
	if json.Unmarshal(fields["body"], &body) != nil || len(body) == 0 {
		return nil, nil, problem(http.StatusBadRequest, "body is missing, or not base64; what lies elsewhere (body_ref) comes over the bus")
	}
	delete(fields, "body")
	return d.join(fields, body)
}

func (d *desk) readForm(raw []byte, boundary string) (*document.Inbound, []byte, error) {
	broken := problem(http.StatusBadRequest, "the form needs one field metadata, then or before one file document, and nothing else")
	if boundary == "" {
		return nil, nil, broken
	}
	var fields map[string]json.RawMessage
	var body []byte
	for form := multipart.NewReader(bytes.NewReader(raw), boundary); ; {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, broken
		}
		content, err := io.ReadAll(part) // of bytes that are here already
		switch name := part.FormName(); {
		case err != nil:
			return nil, nil, broken
		case name == "metadata" && fields == nil && len(content) <= maxMetadata:
			if json.Unmarshal(content, &fields) != nil || fields == nil {
				return nil, nil, problem(http.StatusBadRequest, "metadata is no JSON object")
			}
		case name == "document" && body == nil && len(content) > 0:
			body = content
		default:
			return nil, nil, broken
		}
	}
	if fields == nil || body == nil {
		return nil, nil, broken
	}
	return d.join(fields, body)
}

// join checks the metadata as that of a message on the bus with a body of one byte.
func (d *desk) join(fields map[string]json.RawMessage, body []byte) (*document.Inbound, []byte, error) {
	for name := range fields {
		if name == "body" || name == "body_ref" {
			return nil, nil, problem(http.StatusBadRequest, name+" does not belong here; what lies elsewhere comes over the bus")
		}
	}
	if len(body) > d.largest {
		return nil, nil, problem(http.StatusRequestEntityTooLarge, fmt.Sprintf("the document has %d bytes, at most %d are taken here", len(body), d.largest))
	}
	fields["body"] = json.RawMessage(`"AA=="`)
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, nil, problem(http.StatusBadRequest, "the metadata is no JSON object")
	}
	if len(raw) > maxMetadata {
		return nil, nil, problem(http.StatusBadRequest, "the metadata is too long")
	}
	in, err := document.DecodeInbound(raw)
	if err != nil {
		return nil, nil, problem(http.StatusBadRequest, err.Error())
	}
	in.Body = nil
	return in, body, nil
}
