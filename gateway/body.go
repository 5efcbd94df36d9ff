package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxBody is the most bytes of a request.
const maxBody = 8 << 20

// readBody reads the JSON object of a request. Bytes that are no UTF-8, which
// the journal could not keep as text, are replaced.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return nil, &failure{status: http.StatusRequestEntityTooLarge, code: "request_too_large", message: fmt.Sprintf("the request has more than %d bytes", maxBody)}
	}
	if err != nil {
		return nil, &failure{status: http.StatusBadRequest, code: "invalid_body", message: "the request's body could not be read", cause: err}
	}
	return bytes.ToValidUTF8(body, []byte("\uFFFD")), nil
}

// unmarshal decodes body into v and blames the field that does not fit.
func unmarshal(body []byte, v any) error {
	err := json.Unmarshal(body, v)
	var mistyped *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &mistyped) && mistyped.Field != "":
		return invalid(mistyped.Field, "%s: want %s, got %s", mistyped.Field, mistyped.Type, mistyped.Value)
	case errors.As(err, &mistyped):
		return &failure{status: http.StatusBadRequest, code: "invalid_body", message: "the request's body is not a JSON object"}
	default:
		return &failure{status: http.StatusBadRequest, code: "invalid_json", message: "the request's body is not JSON: " + err.Error(), cause: err}
	}
}
