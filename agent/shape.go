package agent

import (
	"encoding/json"
	"net/http"
	"strings"
)

// refuseIn answers r with an error in the shape of the API that it was asked by.
func refuseIn(w http.ResponseWriter, r *http.Request, status int, code, message string) {
	w.Header().Set(codeHeader, code)
	if r.Header.Get("Anthropic-Version") == "" && !strings.Contains(r.URL.Path, "/v1/messages") {
		refuse(w, status, code, message)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// Who left does not read why.
	_ = json.NewEncoder(w).Encode(map[string]any{"type": "error", "error": map[string]any{"type": anthropicType(status), "message": message}})
}

// anthropicType is Anthropic's word for a status.
func anthropicType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	}
	return "invalid_request_error"
}
