package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway/conversation"
	"github.com/fulgurite/fulgurite/internal/protocol"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/wire"
)

// refuse writes a failure in the shape of the API.
func refuse(w http.ResponseWriter, api wire.API, f *wire.Failure) {
	if f.Status >= http.StatusInternalServerError {
		w.Header().Set(protocol.FaultHeader, protocol.CodeInfrastructure)
	} else if f.Status != http.StatusTooManyRequests {
		// SDKs repeat a 409 by themselves, although no repetition can help.
		w.Header().Set("X-Should-Retry", "false")
	}
	if f.Code != "" {
		w.Header().Set(protocol.CodeHeader, f.Code)
	}
	_ = write(w, f.Status, f.Body(api)) // an error means that the client has left
}

// fault returns the failure for a fault of ours.
func fault(cause error) *wire.Failure {
	return &wire.Failure{Status: http.StatusServiceUnavailable, Code: protocol.CodeInfrastructure, Message: "the gateway can't answer now", Cause: cause}
}

// fenced refuses a request to an attempt that is over.
func fenced(cause error) *wire.Failure {
	return &wire.Failure{Status: http.StatusConflict, Code: protocol.CodeFenced, Message: "this attempt is over or replaced by a later one", Cause: cause}
}

// unknownURL refuses a URL that is not served.
func unknownURL(cause error, format string, arguments ...any) *wire.Failure {
	return &wire.Failure{Status: http.StatusNotFound, Code: "unknown_url", Message: fmt.Sprintf(format, arguments...), Cause: cause}
}

// explain returns the failure that reports err to the client. The API determines the name
// of the field that holds the dialog.
func explain(api wire.API, err error) *wire.Failure {
	var ours *conversation.Fault
	var f *wire.Failure
	var limit *conversation.LimitError
	var form *conversation.FormError
	switch {
	case errors.As(err, &ours):
		return fault(err)
	case errors.As(err, &f):
		return f
	case errors.Is(err, conversation.ErrWrongKey):
		return wrongKey()
	case errors.As(err, &limit):
		f := &wire.Failure{Status: http.StatusBadRequest, Code: protocol.CodeTokenLimit, Message: limit.Error()}
		if limit.Calls > 0 {
			f.Code = protocol.CodeCallLimit
		}
		return f
	case errors.As(err, &form):
		return unsupportedForm(form.Field, form.Field+": "+detail(form.Err, dialog.ErrForm), form.Err)
	case errors.Is(err, record.ErrNotFound):
		return &wire.Failure{Status: http.StatusNotFound, Code: protocol.CodeNotFound, Message: "there is no such attempt: use the base URL that the agent is given (OPENAI_BASE_URL)", Cause: err}
	case errors.Is(err, record.ErrFenced):
		return fenced(err)
	case errors.Is(err, record.ErrConflict):
		return &wire.Failure{Status: http.StatusConflict, Code: "conflict", Message: "something else is on record under this name", Cause: err}
	case errors.Is(err, model.ErrPromptTooLong):
		return promptTooLong(api, err)
	case errors.Is(err, model.ErrRefused):
		return &wire.Failure{Status: http.StatusBadRequest, Code: "refused_by_server", Message: model.ErrRefused.Error() + ": " + detail(err, model.ErrRefused), Cause: err}
	case errors.Is(err, model.ErrRow):
		return &wire.Failure{Status: http.StatusBadRequest, Code: protocol.CodeUnsampled, Message: "no sampler can answer this: " + detail(err, model.ErrRow), Cause: err}
	case errors.Is(err, model.ErrForm):
		return unsupportedForm("", detail(err, model.ErrForm), err)
	case errors.Is(err, dialog.ErrDialog):
		f := wire.Invalid(dialogField(api), "%s can't be rendered for this model: %s", dialogField(api), detail(err, dialog.ErrDialog))
		f.Cause = err
		return f
	}
	return fault(err)
}

// detail returns the part of err's text that follows the text of the error that it wraps.
// The part before it says where in our code the error occurred.
func detail(err, wrapped error) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, wrapped.Error()+": "); ok {
		return after
	}
	return text
}

// promptTooLong makes the failure whose text clients of the API recognize, with the
// numbers if they are known.
func promptTooLong(api wire.API, err error) *wire.Failure {
	field := dialogField(api)
	f := &wire.Failure{Status: http.StatusBadRequest, Code: "context_length_exceeded", Param: field, Cause: err}
	var long *model.PromptTooLong
	switch ok := errors.As(err, &long); {
	case !ok:
		f.Message = fmt.Sprintf("The %s exceed this model's maximum context length: %s. Please reduce the length of the %s.", field, detail(err, model.ErrPromptTooLong), field)
	case api == wire.Messages:
		f.Message = fmt.Sprintf("prompt is too long: %d tokens > %d maximum, with at least one for the reply: reduce the length of the messages", long.Tokens, long.Positions)
	default:
		f.Message = fmt.Sprintf("This model's maximum context length is %d tokens, with at least one for the reply. However, your %s resulted in %d tokens. Please reduce the length of the %s.", long.Positions, field, long.Tokens, field)
	}
	return f
}

// unsupportedForm blames the field that asks for a form of the reply.
func unsupportedForm(param, message string, cause error) *wire.Failure {
	return &wire.Failure{Status: http.StatusBadRequest, Code: "unsupported_form", Param: param, Message: message, Cause: cause}
}

func dialogField(api wire.API) string {
	switch api {
	case wire.Completions:
		return "prompt"
	case wire.Responses:
		return "input"
	}
	return "messages"
}

// write sends a JSON body and reports whether all of it could be handed over.
func write(w http.ResponseWriter, status int, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	// The flush reports the error of a short reply, which would otherwise be seen only
	// after the handler.
	return writeFlushed(w, body)
}

// writeFlushed writes and flushes.
func writeFlushed(w http.ResponseWriter, body []byte) error {
	if _, err := w.Write(body); err != nil {
		return fmt.Errorf("write reply: %w", err)
	}
	if err := http.NewResponseController(w).Flush(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("write reply: %w", err)
	}
	return nil
}

// refusalTimeout is how long the answer to a refused call waits for the journal to count
// the call.
const refusalTimeout = 250 * time.Millisecond

// callError is an error of a model call that presented the key of its attempt.
type callError struct {
	conversation *conversation.Conversation
	error
}

func (e *callError) Unwrap() error { return e.error }

// inCall is inAttempt for model calls; it also counts refused ones.
func (g *Gateway) inCall(handle attemptHandler) func(http.ResponseWriter, *http.Request) error {
	return g.inAttempt(func(w http.ResponseWriter, r *http.Request, c *conversation.Conversation) error {
		if err := handle(w, r, c); err != nil {
			return &callError{c, err}
		}
		return nil
	})
}

// counts reports whether f refuses the call itself. It is false for a fault of ours,
// after which the client asks again, for a call after the end of the attempt, and if the
// client has left.
func counts(r *http.Request, f *wire.Failure) bool {
	return f.Status < http.StatusInternalServerError && f.Code != protocol.CodeFenced && r.Context().Err() == nil
}

// countRefusal records a refused call. A slow or absent journal neither delays the answer
// beyond refusalTimeout nor changes it. The caller has to call wait after its answer.
func (g *Gateway) countRefusal(r *http.Request, address record.Address, f *wire.Failure) (wait func()) {
	done := make(chan struct{})
	wait = conversation.GoSafely(func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), conversation.RecordLimit)
		defer cancel()
		if err := g.config.Journal.AddRefusal(ctx, record.Refusal{Address: address, Code: f.Code, Message: withField(f)}); err != nil {
			g.config.Log.Warn("refusal not recorded", zap.Stringer("rollout", address), zap.String("code", f.Code), zap.Error(err))
		}
	})
	timeout := time.NewTimer(refusalTimeout)
	defer timeout.Stop()
	select {
	case <-done:
	case <-timeout.C:
	}
	return wait
}

// withField returns the message of a failure with the field at fault, which most messages
// name themselves.
func withField(f *wire.Failure) string {
	if f.Param == "" || strings.Contains(f.Message, f.Param) {
		return f.Message
	}
	return f.Param + ": " + f.Message
}
