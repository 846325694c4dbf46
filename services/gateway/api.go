package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"net/http"
	"path"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/rs/zerolog"

	"github.com/posthouse-io/posthouse/pkg/clerk"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

// maxCommand bounds the body of a command, in bytes; documents have a bound of their own.
const maxCommand = 256 << 10

// desk answers requests from the book.
type desk struct {
	docs    *docket.Docket
	book    *ledger.Ledger
	lanes   *lane.Lanes
	policy  *document.Policy
	modes   docket.Duplicates
	clerk   *clerk.Clerk
	largest int // bytes of a document
	log     zerolog.Logger
}

// routes is the API while it is put together.
type routes struct {
	huma.API
	log zerolog.Logger
}

// operation is what is said of one route.
type operation struct {
	id, method, path string
	roles            []Role
	summary, about   string
	answers          map[int]string // beside 401, 403, 500
	body             *huma.RequestBody
	largest          int // bytes of the body
	status           int // of success; 200 when zero
	everywhere       bool
}

// handler serves the API, without the door.
func (d *desk) handler() (http.Handler, error) {
	mux := http.NewServeMux()
	cfg := huma.DefaultConfig("Posthouse operations", "1")
	cfg.Info.Description = "Received documents, answers to C2, and what protects deliveries. Private: every request needs a token, in X-Token or as a bearer token."
	// No page, no schema links, no scripts from elsewhere.
	cfg.OpenAPIPath, cfg.DocsPath, cfg.SchemasPath, cfg.CreateHooks = "", "", "", nil
	cfg.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaName)
	cfg.Components.SecuritySchemes = map[string]*huma.SecurityScheme{
		"token":  {Type: "apiKey", In: "header", Name: "X-Token"},
		"bearer": {Type: "http", Scheme: "bearer"},
	}
	cfg.Security = []map[string][]string{{"token": {}}, {"bearer": {}}}
	r := &routes{API: humago.New(mux, cfg), log: d.log}
	d.inbound(r)
	d.intake(r)
	d.commands(r)
	d.answers(r)
	d.outbound(r)
	description, err := json.Marshal(r.OpenAPI())
	if err != nil {
		return nil, fmt.Errorf("description of the API: %w", err)
	}
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(description)
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "there is nothing here; /openapi.json lists what there is")
	})
	return mux, nil
}

// add registers an operation: its roles are asked for before its body is read, and
// a fault of ours is told to the log only. Bodies are checked by the operations, whose
// faults have the seed's status and quote nothing.
func add[I, O any](r *routes, o operation, handle func(context.Context, *I) (*O, error)) {
	op := huma.Operation{OperationID: o.id, Method: o.method, Path: o.path, Summary: o.summary, Description: o.about, RequestBody: o.body, DefaultStatus: o.status,
		MaxBodyBytes: int64(max(o.largest, 1)), SkipValidateBody: true, BodyReadTimeout: 30 * time.Second, Responses: map[string]*huma.Response{}, Extensions: map[string]any{"x-roles": o.roles}}
	told := map[int]string{http.StatusUnauthorized: "no valid token", http.StatusForbidden: "the token is not for this", http.StatusInternalServerError: "a fault of ours"}
	maps.Copy(told, o.answers)
	problems := &huma.Schema{Type: "object", Description: "RFC 9457", Properties: map[string]*huma.Schema{
		"status": {Type: "integer"}, "title": {Type: "string"}, "detail": {Type: "string"}}}
	for status, what := range told {
		answer := &huma.Response{Description: what}
		if status >= http.StatusBadRequest {
			answer.Content = map[string]*huma.MediaType{"application/problem+json": {Schema: problems}}
		}
		op.Responses[fmt.Sprint(status)] = answer
	}
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		switch key := holder(ctx.Context()); {
		case !key.Allows(o.roles):
			_ = huma.WriteErr(r, ctx, http.StatusForbidden, fmt.Sprintf("the token has none of the roles %v", o.roles))
		case o.everywhere && key.Tenant != "":
			_ = huma.WriteErr(r, ctx, http.StatusForbidden, "this concerns all tenants, and the token is for one")
		default:
			next(ctx)
		}
	}}
	huma.Register(r.API, op, func(ctx context.Context, in *I) (*O, error) {
		out, err := handle(ctx, in)
		if err == nil {
			return out, nil
		}
		told, ours := refusal(err)
		if !ours && ctx.Err() == nil {
			r.log.Error().Err(err).Str("operation", o.id).Str("by", holder(ctx).Name).Msg("a request failed")
		}
		return nil, told
	})
}

// schemaName keeps types of the same name in different rooms apart.
func schemaName(t reflect.Type, hint string) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := huma.DefaultSchemaNamer(t, hint)
	room := path.Base(t.PkgPath())
	if t.Name() == "" || t.PkgPath() == "" || room == "gateway" || room == "v2" {
		return name
	}
	return strings.ToUpper(room[:1]) + room[1:] + name
}

// tenantOf is the tenant that a request is about: that of the token, or the one that
// it names; empty is all.
func tenantOf(ctx context.Context, named string) (string, error) {
	own := holder(ctx).Tenant
	if !storable(named) {
		return "", problem(http.StatusBadRequest, "the tenant is not valid text")
	}
	if own != "" && named != "" && named != own {
		return "", problem(http.StatusForbidden, "the token is for another tenant")
	}
	if own != "" {
		return own, nil
	}
	return named, nil
}

// logTo lets the HTTP server say what it says at the lowest level: it quotes
// strangers.
func logTo(l zerolog.Logger) *log.Logger { return log.New(l.Level(zerolog.DebugLevel), "", 0) }
