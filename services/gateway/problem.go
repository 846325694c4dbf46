package gateway

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthouse-io/posthouse/pkg/docket"
	"github.com/posthouse-io/posthouse/pkg/document"
	"github.com/posthouse-io/posthouse/pkg/lane"
	"github.com/posthouse-io/posthouse/pkg/ledger"
)

// problem is a refusal that the caller reads (RFC 9457).
func problem(status int, detail string) error {
	return &huma.ErrorModel{Status: status, Title: http.StatusText(status), Detail: detail}
}

// refusal turns what the rooms say into what the caller is told; ok is false for a
// fault of ours.
func refusal(err error) (told error, ok bool) {
	var already huma.StatusError
	switch {
	case errors.As(err, &already):
		return err, true
	case errors.Is(err, docket.ErrNotFound):
		return problem(http.StatusNotFound, docket.ErrNotFound.Error()), true
	case errors.Is(err, ledger.ErrNotFound):
		return problem(http.StatusNotFound, ledger.ErrNotFound.Error()), true
	case errors.Is(err, lane.ErrNotFound):
		return problem(http.StatusNotFound, lane.ErrNotFound.Error()), true
	case errors.Is(err, docket.ErrStale):
		return problem(http.StatusConflict, "the document is in work just now; try again when the attempt has ended"), true
	case errors.Is(err, docket.ErrTooMany):
		return problem(http.StatusUnprocessableEntity, docket.ErrTooMany.Error()), true
	case errors.Is(err, document.ErrMLSDisabled):
		return problem(http.StatusServiceUnavailable, err.Error()), true
	case errors.Is(err, document.ErrMLSInvalid):
		return problem(http.StatusBadRequest, err.Error()), true
	case errors.Is(err, document.ErrMLSNotEligible):
		return problem(http.StatusUnprocessableEntity, err.Error()), true
	case errors.Is(err, document.ErrMLSConflict), errors.Is(err, document.ErrState):
		return problem(http.StatusConflict, err.Error()), true
	}
	return problem(http.StatusInternalServerError, "this failed on our side; the log says why"), false
}

// refuse writes a problem outside of an operation.
func refuse(w http.ResponseWriter, status int, detail string) {
	body, err := json.Marshal(problem(status, detail))
	if err != nil {
		body = nil // two strings and a number: it can not
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
