package gateway

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/trace"
)

// FaultHeader marks a reply that tells of a fault of ours: the request may be
// asked again as it is, and the attempt must not be blamed.
const FaultHeader = "X-Fulgurite-Fault"

// failure is an error as a client sees it.
type failure struct {
	status  int
	code    string // for programs
	param   string // the field at fault
	message string // for people
	cause   error
}

func (f *failure) Error() string {
	if f.cause != nil {
		return f.message + ": " + f.cause.Error()
	}
	return f.message
}

func (f *failure) Unwrap() error { return f.cause }

func (f *failure) write(w http.ResponseWriter) {
	kind := "invalid_request_error"
	if f.status >= http.StatusInternalServerError {
		kind = "server_error"
		w.Header().Set(FaultHeader, "infrastructure")
	} else {
		// SDKs repeat a 409 by themselves, although no repetition can help.
		w.Header().Set("X-Should-Retry", "false")
	}
	nullable := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	body, err := json.Marshal(map[string]any{"error": map[string]any{
		"message": f.message, "type": kind, "code": nullable(f.code), "param": nullable(f.param),
	}})
	if err != nil {
		body = []byte(`{"error":{"message":"internal error","type":"server_error","code":null,"param":null}}`)
	}
	_ = write(w, f.status, body) // who left does not read why
}

// invalid blames a field of the request.
func invalid(param, format string, arguments ...any) *failure {
	return &failure{status: http.StatusBadRequest, code: "invalid_value", param: param, message: fmt.Sprintf(format, arguments...)}
}

// fault is a failure of ours.
func fault(cause error) *failure {
	return &failure{status: http.StatusServiceUnavailable, code: "infrastructure", message: "the gateway can't answer now", cause: cause}
}

// fenced refuses an attempt that is over.
func fenced(cause error) *failure {
	return &failure{status: http.StatusConflict, code: "attempt_fenced", message: "this attempt is over or replaced by a later one", cause: cause}
}

// explain finds out whose failure err is.
func explain(err error) *failure {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f
	case errors.Is(err, trace.ErrNotFound):
		return &failure{status: http.StatusNotFound, code: "not_found", message: err.Error(), cause: err}
	case errors.Is(err, trace.ErrFenced):
		return fenced(err)
	case errors.Is(err, trace.ErrConflict):
		return &failure{status: http.StatusConflict, code: "conflict", message: err.Error(), cause: err}
	case errors.Is(err, model.ErrPromptTooLong):
		return &failure{status: http.StatusBadRequest, code: "context_length_exceeded", param: "messages", message: err.Error(), cause: err}
	case errors.Is(err, dialog.ErrDialog):
		return invalid("messages", "%s", err)
	}
	return fault(err)
}

// write sends a JSON body and reports whether all of it could be handed over.
func write(w http.ResponseWriter, status int, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("write reply: %w", err)
	}
	// Without it, an error of a short reply would only show after the handler.
	if err := http.NewResponseController(w).Flush(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("write reply: %w", err)
	}
	return nil
}
