package docket_test

import (
	"errors"
	"testing"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// The list of missing answers says what the domain says of each document.
func TestMissingAnswersAreThoseOfTheDomain(t *testing.T) {
	t.Parallel()
	b := open(t, func(p *document.Policy) { p.Trigger = document.TriggerAPI })
	first := b.receive(t, invoice("1"))
	for _, kind := range []string{"business", "mls"} {
		for _, state := range []string{"forwarded", "dead"} {
			for _, code := range []string{"", "AB"} {
				for _, verdict := range []string{"", "passed", "rejected"} {
					for _, typ := range []string{"ALWAYS_SEND", "FAILURE_ONLY"} {
						if _, err := b.db.Exec(t.Context(), `INSERT INTO document SELECT (jsonb_populate_record(d, jsonb_build_object('id', $2::uuid, 'kind', $3::text, 'state', $4::text,
							'mls_code', $5::text, 'verdict', $6::text, 'mls_type', $7::text))).* FROM document d WHERE d.id = $1`,
							[16]byte(first.ID), [16]byte(delivery.NewID()), kind, state, code, verdict, typ); err != nil {
							t.Fatal(err)
						}
						f := document.Facts{Kind: document.Kind(kind), State: document.State(state), Verdict: document.Verdict(verdict), MLSType: document.MLSType(typ), MLS: document.MLS{Code: document.Code(code)}}
						lines, err := b.MissingMLS(t.Context(), docket.Page{Tenant: "acme", From: time.Now().Add(-time.Hour), Limit: 100})
						if err != nil {
							t.Fatal(err)
						}
						if got := len(lines) == 1; got != f.Missing() {
							t.Errorf("%+v: listed %v, missing %v", f, got, f.Missing())
						}
						b.exec(t, `DELETE FROM document WHERE kind <> 'business' OR state <> 'received'`)
					}
				}
			}
		}
	}
}

// A page begins where it is told, the newest first, and knows its tenant.
func TestPagesAndPayload(t *testing.T) {
	t.Parallel()
	b := open(t, nil)
	var ids []delivery.ID
	for _, n := range []string{"1", "2", "3"} {
		ids = append(ids, b.receive(t, invoice(n)).ID)
	}
	for _, c := range []struct {
		page docket.Page
		want []delivery.ID
	}{
		{docket.Page{Limit: 10}, []delivery.ID{ids[2], ids[1], ids[0]}},
		{docket.Page{Limit: 1, Offset: 1, Tenant: "acme"}, []delivery.ID{ids[1]}},
		{docket.Page{}, []delivery.ID{ids[2]}},
		{docket.Page{Limit: -1, Offset: -1}, []delivery.ID{ids[2]}},
		{docket.Page{Limit: 10, Tenant: "globex"}, nil},
		{docket.Page{Limit: 10, From: ids[0].Time()}, []delivery.ID{ids[2], ids[1], ids[0]}},
		{docket.Page{Limit: 10, From: time.Now().Add(time.Minute)}, nil},
		{docket.Page{Limit: 10, From: time.Date(-5, 1, 1, 0, 0, 0, 0, time.UTC)}, []delivery.ID{ids[2], ids[1], ids[0]}},
	} {
		lines, err := b.InProcessing(t.Context(), c.page)
		if err != nil || lines == nil || len(lines) != len(c.want) {
			t.Errorf("%+v: %v %v", c.page, lines, err)
			continue
		}
		for i := range lines {
			if lines[i].ID != c.want[i] {
				t.Errorf("%+v: %v, want %v", c.page, lines[i].ID, c.want[i])
			}
		}
	}
	p, err := b.Payload(t.Context(), ids[0])
	if err != nil || string(p.Body) != "<invoice>1</invoice>" || p.ContentType != "application/xml" || len(p.SHA256) != 32 {
		t.Errorf("%+v %v", p, err)
	}
	if _, err := b.Payload(t.Context(), delivery.NewID()); !errors.Is(err, docket.ErrNotFound) {
		t.Error(err)
	}
	for _, name := range []string{"", "nobody", "\x00", "\xff", ids[0].String() + "x"} {
		if _, err := b.Resolve(t.Context(), "", name); !errors.Is(err, docket.ErrNotFound) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if id, err := b.Resolve(t.Context(), "acme", "sbdh-2"); err != nil || id != ids[1] {
		t.Error(id, err)
	}
	if _, err := b.Resolve(t.Context(), "globex", ids[1].String()); !errors.Is(err, docket.ErrNotFound) {
		t.Error(err)
	}
}
