package verify

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/forward"
)

// Direction tells a verifier which way the document goes.
type Direction string

const (
	Inbound  Direction = "inbound"
	Outbound Direction = "outbound"
)

// Document is what the verifiers are asked about. The texts come from the other
// side and may hold anything; empty ones are left out.
type Document struct {
	ID             delivery.ID
	Direction      Direction
	Kind           document.Kind
	Tenant         string
	SBDHInstanceID string
	SenderID       string // scheme::value
	ReceiverID     string
	DocTypeID      string
	ProcessID      string
	C1Country      string
	Traceparent    string // W3C trace context

	ContentType string // empty means application/xml
	Size        int64  // bytes, at least 1
	SHA256      [32]byte

	// Open starts reading the document from its first byte, as often as it is asked:
	// once for each verifier, at the same time. A Read that is waiting must return when
	// ctx ends.
	Open func(ctx context.Context) (io.ReadCloser, error)
}

// maxValue bounds a foreign text in a header: most servers take 8 KiB in all.
const maxValue = 700

func (d *Document) header(token string) http.Header {
	h := http.Header{}
	kind := d.ContentType
	if kind == "" {
		kind = forward.XML
	}
	h.Set("Content-Type", kind)
	h.Set("Accept", "application/json")
	h.Set("User-Agent", "posthouse")
	h.Set("Posthouse-Document-Id", d.ID.String())
	h.Set("Posthouse-Sha256", hex.EncodeToString(d.SHA256[:]))
	for name, value := range map[string]string{
		"Posthouse-Direction":     string(d.Direction),
		"Posthouse-Document-Kind": string(d.Kind),
		"Posthouse-Tenant":        d.Tenant,
		"Posthouse-Sbdh-Id":       d.SBDHInstanceID,
		"Posthouse-Sender-Id":     d.SenderID,
		"Posthouse-Receiver-Id":   d.ReceiverID,
		"Posthouse-Doctype-Id":    d.DocTypeID,
		"Posthouse-Process-Id":    d.ProcessID,
		"Posthouse-C1-Country":    d.C1Country,
	} {
		if value != "" {
			h.Set(name, forward.Escape(value, maxValue))
		}
	}
	if delivery.ValidTrace(d.Traceparent) && !strings.ContainsAny(d.Traceparent, "\r\n") {
		h.Set("Traceparent", d.Traceparent)
	}
	if token != "" {
		h.Set("Authorization", "Bearer "+token)
	}
	return h
}

// payload is the reader that gives the last byte only when size and hash are
// right, so no verifier judges a document that is not the one received. slow is
// set when a read was still waiting for our own store as ctx ended.
func (d *Document) payload(ctx context.Context, slow *atomic.Bool) (*forward.Payload, error) {
	open := func(ctx context.Context) (io.ReadCloser, error) {
		src, err := d.Open(ctx)
		if err != nil {
			return nil, err
		}
		return &watched{ReadCloser: src, ended: ctx.Err, slow: slow}, nil
	}
	return forward.Open(ctx, &forward.Document{ID: d.ID, Size: d.Size, SHA256: d.SHA256, Open: open}, nil)
}

// watched notes whose time was used up: that of a verifier that does not read, or
// ours.
type watched struct {
	io.ReadCloser
	ended func() error
	slow  *atomic.Bool
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if err != nil && w.ended() != nil {
		w.slow.Store(true)
	}
	return n, err
}
