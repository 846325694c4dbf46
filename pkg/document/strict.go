package document

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/posthouse-io/posthouse/pkg/delivery"
)

// decodeStrict reads one JSON object: no unknown field, nothing after it.
func decodeStrict(body []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return decodeFault(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON object")
	}
	return nil
}

// decodeFault keeps the decoder's own words, without the content.
func decodeFault(err error) error {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	var moment *time.ParseError
	var code base64.CorruptInputError
	switch {
	case errors.As(err, &syntax):
		return fmt.Errorf("the message is not JSON (at byte %d)", syntax.Offset)
	case errors.As(err, &kind):
		return fmt.Errorf("%s is a JSON %s, want %s", or(kind.Field, "the message"), kind.Value, kind.Type)
	case errors.As(err, &moment): // its text quotes the value
		return errors.New("received_at or as4_timestamp is no time of RFC 3339, such as 2026-12-24T18:00:00Z")
	case errors.As(err, &code):
		return fmt.Errorf("body is not base64 (at byte %d)", int64(code))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("the message ends before its JSON does")
	}
	return errors.New(delivery.Bound(strings.TrimPrefix(err.Error(), "json: ")))
}
