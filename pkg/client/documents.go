package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/posthouse-io/posthouse/pkg/bus"
	"github.com/posthouse-io/posthouse/pkg/delivery"
	"github.com/posthouse-io/posthouse/pkg/document"
)

// ErrNoDocument says that Posthouse has no such document (yet).
var ErrNoDocument = errors.New("no such document")

// Document tells where a received document is: by its own id, or by an SBDH instance
// id, of which the newest counts. tenant may be empty.
func (c *Client) Document(ctx context.Context, id, tenant string) (*document.Status, error) {
	s, err := ask[document.Status](ctx, c, "forwarder", "status", delivery.Lookup{ID: id, Tenant: tenant})
	return s, unknown(id, err)
}

// ReplayDocument forwards a document again, whatever became of it.
func (c *Client) ReplayDocument(ctx context.Context, command document.Command) (*document.Status, error) {
	s, err := ask[document.Status](ctx, c, "forwarder", "replay", command)
	return s, unknown(command.ID, err)
}

// ReverifyDocument asks the verifiers again, and forwards the document if they pass it.
func (c *Client) ReverifyDocument(ctx context.Context, command document.Command) (*document.Status, error) {
	s, err := ask[document.Status](ctx, c, "forwarder", "reverify", command)
	return s, unknown(command.ID, err)
}

// ReportC4 tells the country of a document's receiver.
func (c *Client) ReportC4(ctx context.Context, report document.C4Report) (*document.Status, error) {
	s, err := ask[document.Status](ctx, c, "forwarder", "report-c4", report)
	return s, unknown(report.ID, err)
}

// SendMLS answers C2 about a document; the first word counts. A refusal is a
// *bus.Error with code 503, 400, 422 or 409.
func (c *Client) SendMLS(ctx context.Context, command document.MLSCommand) (*document.MLSAnswer, error) {
	a, err := ask[document.MLSAnswer](ctx, c, "forwarder", "mls-send", command)
	return a, unknown(command.ID, err)
}

func unknown(id string, err error) error {
	var refusal *bus.Error
	if errors.As(err, &refusal) && refusal.Code == "404" {
		return fmt.Errorf("document %s: %w", id, ErrNoDocument)
	}
	return err
}
