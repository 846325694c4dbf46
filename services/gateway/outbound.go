package gateway

import (
	"context"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

// sought is how a request names one delivery.
type sought struct {
	ID     string `path:"id" maxLength:"128" doc:"delivery id, or with tenant the id that the request had"`
	Tenant string `query:"tenant" maxLength:"64" doc:"the request's tenant"`
}

type deliveryAnswer struct{ Body *delivery.Status }

// outbound adds what can be asked about deliveries.
func (d *desk) outbound(r *routes) {
	unknown := map[int]string{http.StatusNotFound: "no such delivery"}
	add(r, operation{id: "outbound-status", method: http.MethodGet, path: "/api/outbound/status/{id}", roles: []Role{Operator, Reader}, answers: unknown,
		summary: "All that is known of a delivery, and what holds it"},
		func(ctx context.Context, in *sought) (*deliveryAnswer, error) {
			s, err := d.delivery(ctx, in)
			return &deliveryAnswer{Body: s}, err
		})
	add(r, operation{id: "outbound-timeline", method: http.MethodGet, path: "/api/ops/outbound/{id}/timeline", roles: []Role{Operator, Reader}, answers: unknown,
		summary: "The moves of a delivery and its attempts"},
		func(ctx context.Context, in *sought) (*timelineAnswer, error) {
			s, err := d.delivery(ctx, in)
			if err != nil {
				return nil, err
			}
			return &timelineAnswer{Body: timeline{ID: s.ID, Journey: s.Journey, Tried: s.Tried}}, nil
		})
}

func (d *desk) delivery(ctx context.Context, in *sought) (*delivery.Status, error) {
	tenant, err := tenantOf(ctx, in.Tenant)
	if err != nil {
		return nil, err
	}
	if !storable(in.ID) {
		return nil, ledger.ErrNotFound
	}
	id, err := d.book.Find(ctx, tenant, in.ID)
	if err != nil {
		return nil, err
	}
	s, err := d.book.Status(ctx, id)
	if err != nil {
		return nil, err
	}
	if tenant != "" && s.Tenant != tenant { // found by its own id
		return nil, ledger.ErrNotFound
	}
	return s, nil
}

// storable is text that the database can hold.
func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
